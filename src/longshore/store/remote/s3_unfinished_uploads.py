"""List and abort unfinished multipart uploads, with two signed requests, because obstore has no call for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from io import BytesIO
from typing import Final
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

import pycurl

from longshore.errors import StoreUnavailable

_EMPTY: Final = hashlib.sha256(b"").hexdigest()
_LARGEST_ANSWER: Final = 16 << 20
_TIMEOUT_S: Final = 60


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its region."""

    key_id: str
    secret: str = field(repr=False)
    token: str | None = field(repr=False)
    region: str


class Uploads:
    """The multipart uploads of one bucket."""

    def __init__(self, bucket: str, endpoint: str | None, credentials: Credentials) -> None:
        self._endpoint = (endpoint or f"https://s3.{credentials.region}.amazonaws.com").rstrip("/")
        self._bucket = bucket
        self._credentials = credentials

    def abort_older(self, prefix: str, older_than_s: float) -> int:
        """Abort uploads that are older than `older_than_s` by the server's dates."""
        aborted = 0
        for key, upload_id, begun in list(self._list(prefix)):
            now = datetime.now(UTC)
            if (now - begun).total_seconds() >= older_than_s:
                self._ask("DELETE", key, {"uploadId": upload_id})
                aborted += 1
        return aborted

    def count(self, prefix: str) -> int:
        """Return the number of unfinished uploads."""
        return sum(1 for _ in self._list(prefix))

    def _list(self, prefix: str) -> Iterator[tuple[str, str, datetime]]:
        markers: dict[str, str] = {}
        while True:
            answer = _without_names(self._ask("GET", "", {"uploads": "", "prefix": prefix, **markers}))
            for upload in answer.iter("Upload"):
                key, upload_id = upload.findtext("Key") or "", upload.findtext("UploadId") or ""
                begun = upload.findtext("Initiated") or ""
                if key.startswith(prefix):
                    yield key, upload_id, datetime.fromisoformat(begun)
            if answer.findtext("IsTruncated") != "true":
                return
            markers = {
                "key-marker": answer.findtext("NextKeyMarker") or "",
                "upload-id-marker": answer.findtext("NextUploadIdMarker") or "",
            }

    def _ask(self, method: str, key: str, query: dict[str, str]) -> bytes:
        path = "/" + quote(f"{self._bucket}/{key}" if key else self._bucket, safe="/-_.~")
        query_text = urlencode(sorted(query.items()), quote_via=quote, safe="-_.~")
        try:
            status, body = send_signed(self._credentials, method, f"{self._endpoint}{path}?{query_text}")
        except pycurl.error as error:
            raise StoreUnavailable(f"multipart uploads: {error.args[-1]}") from None
        if status == HTTPStatus.NOT_FOUND:  # finished or aborted meanwhile
            return b"<none/>"
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise StoreUnavailable(f"multipart uploads: the object store answered {status}")
        return body


def send_signed(credentials: Credentials, method: str, url: str) -> tuple[int, bytes]:
    """Send a request without a body; libcurl signs it (AWS Signature Version 4). Return status and body."""
    headers = ["x-amz-content-sha256: " + _EMPTY]
    if credentials.token:
        headers.append(f"x-amz-security-token: {credentials.token}")
    body = BytesIO()
    with closing(pycurl.Curl()) as curl:
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.CUSTOMREQUEST, method)
        curl.setopt(pycurl.AWS_SIGV4, f"aws:amz:{credentials.region}:s3")
        curl.setopt(pycurl.USERNAME, credentials.key_id)
        curl.setopt(pycurl.PASSWORD, credentials.secret)
        curl.setopt(pycurl.HTTPHEADER, headers)
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        curl.setopt(pycurl.PROXY, "")
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.TIMEOUT, _TIMEOUT_S)
        curl.setopt(pycurl.WRITEFUNCTION, lambda piece: body.write(piece) if body.tell() < _LARGEST_ANSWER else 0)
        curl.perform()
        return curl.getinfo(pycurl.RESPONSE_CODE), body.getvalue()


def _without_names(raw: bytes) -> ET.Element:
    if b"<!DOCTYPE" in raw or b"<!ENTITY" in raw:
        raise StoreUnavailable("multipart uploads: the response is not valid for S3")
    try:
        root = ET.fromstring(raw)
    except ET.ParseError:
        raise StoreUnavailable("multipart uploads: the response cannot be parsed") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
