"""List and abort unfinished multipart uploads, with two signed requests, because obstore has no call for it."""

from __future__ import annotations

import hashlib
import hmac
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree as ET

from longshore.errors import StoreUnavailable

_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY = hashlib.sha256(b"").hexdigest()
_LARGEST_ANSWER = 16 << 20


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
        headers = sign(self._credentials, method, urlsplit(self._endpoint).netloc, path, query_text, datetime.now(UTC))
        request = urllib.request.Request(f"{self._endpoint}{path}?{query_text}", method=method, headers=headers)
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=60) as answer:
                body: bytes = answer.read(_LARGEST_ANSWER)
                return body
        except urllib.error.HTTPError as error:
            if error.code == 404:  # finished or aborted meanwhile
                return b"<none/>"
            raise StoreUnavailable(f"multipart uploads: the object store answered {error.code}") from None
        except OSError as error:
            raise StoreUnavailable(f"multipart uploads: {type(error).__name__}") from None


def sign(credentials: Credentials, method: str, host: str, path: str, query: str, now: datetime) -> dict[str, str]:
    """Return the headers of a request without a body, signed with AWS Signature Version 4."""
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": host, "x-amz-content-sha256": _EMPTY, "x-amz-date": stamp}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    signed = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{signed}\n{_EMPTY}"
    scope = f"{day}/{credentials.region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credentials.secret}".encode()
    for piece in (day, credentials.region, "s3", "aws4_request"):
        key = hmac.new(key, piece.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    del headers["host"]
    credential = f"{credentials.key_id}/{scope}"
    headers["Authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature={signature}"
    return headers


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
