"""Idempotency keys: which requests are the same job, and which effects are the same operation.

`job_key` and `op_key` produce the v1 format, byte for byte. Values are strings, integers, booleans or None: NaN, a string
that is not NFC, a NUL or a lone surrogate is refused, because two spellings of one meaning would be two keys. The parameters
of a job may also be finite floats. In a key, a float without a fraction is the integer: JSON does not tell 1.0 from 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from json.encoder import encode_basestring_ascii as _quoted
from typing import Final

import ada_url

from longshore.errors import BadInput, NotAUrl

Scalar = str | int | float | bool | None
Value = Scalar | list["Value"] | dict[str, "Value"]

RESERVED: Final = frozenset({"v", "kind", "job"})
MAX_TEXT: Final = 65_536
MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 1 << 256
MAX_EXACT: Final = 1 << 53  # up to here, every integer is a float
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def check_text(name: str, value: object, *, limit: int = MAX_TEXT, empty: bool = False) -> str:
    """Return the text if it can be part of a key, else raise `BadInput` that names it."""
    if not isinstance(value, str):
        raise BadInput(f"{name} must be text, not {type(value).__name__}")
    if not value and not empty:
        raise BadInput(f"{name} is empty")
    if len(value) > limit:
        raise BadInput(f"{name} has {len(value)} characters; {limit} are allowed")
    if value.isascii():
        if "\0" in value:
            raise BadInput(f"{name} contains a NUL")
        return value
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise BadInput(f"{name} contains a NUL or a lone surrogate")
    if not unicodedata.is_normalized("NFC", value):
        raise BadInput(f"{name} is not in Unicode normal form C")
    return value


def check_params(params: object) -> None:
    """Raise `BadInput`, with the path of the value, unless the parameters of a job can be part of its key."""
    _check_value("params", params, floats=True)


def _check_value(name: str, value: object, depth: int = 0, *, floats: bool = False) -> None:
    if depth > MAX_DEPTH:
        raise BadInput(f"{name[:80]} is nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool():
            pass
        case int():
            if abs(value) > MAX_INTEGER:
                raise BadInput(f"{name} is too large a number")
        case float() if floats:
            if not math.isfinite(value):
                raise BadInput(f"{name} is {value}: only finite numbers can be written as JSON")
        case str():
            check_text(name, value, limit=16 * MAX_TEXT, empty=True)
        case list() | tuple():
            for place, item in enumerate(value):
                _check_value(f"{name}[{place}]", item, depth + 1, floats=floats)
        case dict():
            for key, item in value.items():
                check_text(f"a name in {name}", key)
                _check_value(f"{name}.{key}", item, depth + 1, floats=floats)
        case _:
            numbers = "numbers" if floats else "integers"
            raise BadInput(f"{name} is a {type(value).__name__}: a key takes text, {numbers}, booleans and null")


def _canonical(value: Value) -> Value:
    """Return a value with one spelling for each number: 1.0 is 1 and -0.0 is 0."""
    match value:
        case float() if value.is_integer() and abs(value) < MAX_EXACT:
            return int(value)
        case list() | tuple():
            return [_canonical(item) for item in value]
        case dict():
            return {key: _canonical(item) for key, item in value.items()}
    return value


def _sha256(payload: str) -> str:
    return hashlib.sha256(payload.encode()).hexdigest()


def job_key(work_id: str, artifact_id: str, canonical_url: str) -> str:
    """Return the v1 key of a download: work, artifact and canonical URL."""
    check_text("canonical_url", canonical_url)
    if work_id is not canonical_url:
        check_text("work_id", work_id)
    if artifact_id is not canonical_url:
        check_text("artifact_id", artifact_id)
    # The canonical JSON of {"v": 1, "kind": "JOB", "work", "art", "url"}, put together by hand: a list has a million of these.
    art, url, work = _quoted(artifact_id), _quoted(canonical_url), _quoted(work_id)
    return _sha256(f'{{"art":{art},"kind":"JOB","url":{url},"v":1,"work":{work}}}')


def op_key(kind: str, job_id: str, **extras: Value) -> str:
    """Key one effect of one job (v1); extras may not use the format's own names."""
    check_text("kind", kind)
    check_text("job_id", job_id)
    if taken := RESERVED & extras.keys():
        raise BadInput(f"extras of an op_key may not be named {', '.join(sorted(taken))}")
    for name, value in extras.items():
        _check_value(name, value)
    return _sha256(_encode({"v": 1, "kind": kind, "job": job_id, **extras}))


def content_key(
    tenant_id: str, project_id: str, job_type: str, input_sha256: list[str], params: dict[str, Value] | None = None
) -> str:
    """Return the key of a job by its inputs' hashes: a hash over canonical JSON, never a concatenation."""
    for name, value in (("tenant_id", tenant_id), ("project_id", project_id), ("job_type", job_type)):
        check_text(name, value)
    if not isinstance(input_sha256, list | tuple):
        raise BadInput("input_sha256 is a list of digests")
    for digest in input_sha256:
        if not isinstance(digest, str) or not _SHA256.match(digest):
            raise BadInput("an input's sha256 has 64 lower-case hexadecimal digits")
    check_params(params or {})
    body = ["longshore-content-key", 1, tenant_id, project_id, job_type, list(input_sha256), _canonical(params or {})]
    return _sha256(_encode(body))


def debug_id_of(job_id: str, epoch: int) -> str:
    """Return the id under which the log has the failure of one attempt, if nothing gave it another one."""
    return _sha256(f"{job_id}:{epoch}")[:12]


def shown(raw: str) -> str:
    """Return an invalid URL in a form that is safe in an error message: without credentials and query."""
    text = raw[:200].partition("?")[0]
    before, at, after = text.rpartition("@")
    scheme = before.partition("//")[0] + "//" if "//" in before else ""
    return f"{scheme}…@{after}" if at else text


def canonical_url(raw: str) -> str:
    """Return a URL's identity: the WHATWG href without fragment. It is also what is requested."""
    check_text("url", raw)
    try:
        url = ada_url.URL(raw)
    except ValueError:
        raise NotAUrl(f"not a URL: {shown(raw)!r}") from None
    return str(url.href).partition("#")[0]


def host_of(canonical: str) -> str:
    """Return the host that a URL's politeness is counted under: host and port as written, without credentials."""
    return str(ada_url.URL(canonical).host)
