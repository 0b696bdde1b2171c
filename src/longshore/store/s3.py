"""Objects in S3 and its kin, through obstore. A small object is created on condition that there is none.

A large one goes by multipart upload, which obstore cannot make conditional: it looks first, and a race writes the same
bytes twice. The server checks the SHA-256 of what it receives.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

from longshore.errors import BadInput, NotFound, StoreError, StoreUnavailable
from longshore.store.parts import Part
from longshore.store.remote import Found
from longshore.store.s3_uploads import Credentials, Uploads
from longshore.store.settings import StoreSettings

SINGLE_BYTES: Final = 8 << 20  # more goes by multipart
CHUNK_BYTES: Final = 8 << 20
PROBE_CHUNK: Final = 5 << 20  # the smallest piece that S3 takes before the last
PROBE_BYTES: Final = PROBE_CHUNK + 1_000
_MOST_CHUNKS: Final = 9_000  # S3 allows 10,000
_CONCURRENCY: Final = 4  # chunks of one upload
_LARGE_AT_ONCE: Final = 2  # uploads by multipart: this many times _CONCURRENCY chunks are in memory


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where the objects lie. `s3://bucket/prefix?endpoint=http://host:port&region=…`."""

    name: str
    prefix: str
    endpoint: str | None
    region: str

    @classmethod
    def parse(cls, where: str, settings: StoreSettings) -> Bucket:
        """Take a URL apart; what it does not say comes from the settings, then from AWS's own variables."""
        url = urlsplit(where)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        if not url.hostname or url.username or url.password or set(query) - {"endpoint", "region"}:
            raise BadInput("an S3 store is s3://bucket/prefix, with ?endpoint=… and &region=… where needed")
        environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        return cls(
            url.hostname,
            url.path.strip("/"),
            query.get("endpoint") or settings.s3_endpoint or environment,
            query.get("region") or settings.s3_region or region,
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """What one thing that we rely on did when it was tried."""

    name: str
    works: bool
    evidence: str
    level: Literal["warn", "fail"] = "fail"
    remedy: str | None = None


class S3Objects:
    """One prefix of one bucket."""

    backend = "s3"

    def __init__(self, where: str, settings: StoreSettings) -> None:
        from obstore.store import S3Store

        self._bucket = bucket = Bucket.parse(where, settings)
        key_id = settings.s3_access_key_id or os.environ.get("AWS_ACCESS_KEY_ID")
        secret = settings.s3_secret_access_key or os.environ.get("AWS_SECRET_ACCESS_KEY")
        config: dict[str, Any] = {"region": bucket.region, "checksum_algorithm": "SHA256"}
        if bucket.endpoint:
            config |= {"endpoint": bucket.endpoint, "virtual_hosted_style_request": False}
        if key_id and secret:
            config |= {"access_key_id": key_id, "secret_access_key": secret}
        self._store = S3Store(
            bucket.name,
            config=config,
            client_options={
                "allow_http": (bucket.endpoint or "").startswith("http://"),
                "timeout": timedelta(seconds=120),
                "connect_timeout": timedelta(seconds=10),
            },
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=20)},
        )
        self._large = threading.Semaphore(_LARGE_AT_ONCE)
        self._uploads = None
        if key_id and secret:
            token = os.environ.get("AWS_SESSION_TOKEN") if not settings.s3_access_key_id else None
            credentials = Credentials(key_id, secret, token, bucket.region)
            self._uploads = Uploads(bucket.name, bucket.endpoint, credentials)

    def _key(self, key: str) -> str:
        return f"{self._bucket.prefix}/{key}" if self._bucket.prefix else key

    def put(self, key: str, body: bytes | Part, content_type: str, *, aside: str | None = None) -> bool:
        """Create an object, whole and durable; False if there is one already. With `aside`, keep that one there."""
        attributes = {"Content-Type": content_type} if content_type else None
        if aside is not None:
            with contextlib.suppress(NotFound), _errors("keeping a blob"):
                self._store.copy(self._key(key), self._key(aside), overwrite=True)
        with _errors("putting a blob"), _buffer(body) as data:
            if len(data) <= SINGLE_BYTES:
                return self._create(key, bytes(data), attributes, replace=aside is not None)
            with self._large:
                return self._upload(key, data, attributes, replace=aside is not None)

    def _upload(self, key: str, data: memoryview, attributes: dict[str, str] | None, *, replace: bool) -> bool:
        if not replace and self.size(key) is not None:
            return False
        chunk = max(CHUNK_BYTES, -(-len(data) // _MOST_CHUNKS))
        self._store.put(
            self._key(key),
            _chunks(data, chunk),
            attributes=attributes,
            use_multipart=True,
            chunk_size=chunk,
            max_concurrency=_CONCURRENCY,
        )
        if self.size(key) != len(data):
            raise StoreUnavailable("the object store took another number of bytes than it was sent")
        return True

    def _create(self, key: str, data: bytes, attributes: dict[str, str] | None, *, replace: bool = False) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Literal["create", "overwrite"] = "overwrite" if replace else "create"
        try:
            self._store.put(self._key(key), data, attributes=attributes, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def size(self, key: str) -> int | None:
        """Give an object's size."""
        try:
            with _errors("looking for a blob"):
                return int(self._store.head(self._key(key))["size"])
        except NotFound:
            return None

    def read(self, key: str, start: int, end: int) -> bytes:
        """Give some of an object's bytes."""
        with _errors("reading a blob"):
            return bytes(self._store.get_range(self._key(key), start=start, end=end))

    def list(self, prefix: str) -> Iterator[Found]:
        """Give every object whose key begins so, in order. obstore lists folders: begin just before, end just after."""
        folder, _, name = self._key(prefix).rpartition("/")
        skip = len(self._bucket.prefix) + 1 if self._bucket.prefix else 0
        before = self._key(prefix)[:-1] if name else None
        with _errors("listing blobs"):
            for batch in self._store.list(folder or None, offset=before, chunk_size=1000):
                for entry in batch:
                    key = entry["path"][skip:]
                    if key.startswith(prefix):
                        yield Found(key, entry["size"], int(entry["last_modified"].timestamp() * 1_000_000))
                    elif key > prefix:
                        return

    def move(self, key: str, target: str) -> bool:
        """Give an object another key."""
        try:
            with _errors("moving a blob"):
                self._store.copy(self._key(key), self._key(target), overwrite=True)
        except NotFound:
            return False
        return self.delete(key)

    def delete(self, key: str) -> bool:
        """Remove an object; S3 itself does not say whether there was one."""
        if self.size(key) is None:
            return False
        with _errors("removing a blob"):
            self._store.delete(self._key(key))
        return True

    def collect(self, older_than_s: float) -> int:
        """Abort multipart uploads under our prefix that nobody finished."""
        if self._uploads is None:
            return 0
        return self._uploads.abort_older(self._key(""), older_than_s)

    def probe(self) -> tuple[Trial, ...]:
        """Try what we rely on with a few objects of our own, and take them away again."""
        name = f".longshore-probe/{uuid.uuid4().hex}"
        small, large = f"{name}-small", f"{name}-large"
        try:
            return self._try_condition(small), self._try_multipart(large), self._try_unfinished()
        finally:
            for key in (small, large):
                with contextlib.suppress(StoreError):
                    self.delete(key)

    def _try_condition(self, key: str) -> Trial:
        with _errors("a conditional put"):
            first, second = self._create(key, b"first", None), self._create(key, b"other", None)
        if first and not second and self.read(key, 0, 5) == b"first":
            return Trial("conditional put", True, "a second put is refused")
        return Trial(
            "conditional put", False, "If-None-Match is ignored: a second put replaced the first", "warn",
            "bytes of one hash are equal, so this is safe; prefer a server with conditional puts",
        )  # fmt: skip

    def _try_multipart(self, key: str) -> Trial:
        data = b"longshore" * ((PROBE_BYTES + 8) // 9)
        with _errors("a multipart upload"):
            chunks = _chunks(memoryview(data), PROBE_CHUNK)
            self._store.put(self._key(key), chunks, use_multipart=True, chunk_size=PROBE_CHUNK, max_concurrency=1)
        if (
            self.size(key) == len(data)
            and self.read(key, PROBE_CHUNK - 9, PROBE_CHUNK + 9) == data[PROBE_CHUNK - 9 : PROBE_CHUNK + 9]
        ):
            return Trial("multipart", True, f"{len(data):,} bytes in two pieces read back equal")
        return Trial("multipart", False, "what was uploaded does not read back", "fail", "large files would be damaged")

    def _try_unfinished(self) -> Trial:
        if self._uploads is None:
            told = "no key in the settings: unfinished uploads cannot be listed"
            return Trial("unfinished uploads", False, told, "warn", "set a lifecycle rule that aborts them")
        return Trial("unfinished uploads", True, f"{self._uploads.count(self._key(''))} listed")

    def close(self) -> None:
        """Nothing is held open."""


@contextmanager
def _buffer(body: bytes | Part) -> Iterator[memoryview]:
    """Give the bytes of a body; a part's are mapped, not read into memory."""
    if isinstance(body, bytes) or not body.size_bytes:
        yield memoryview(body if isinstance(body, bytes) else b"")
        return
    with mmap.mmap(body.fd, body.size_bytes, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
        yield view


def _chunks(data: memoryview, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield bytes(data[start : start + size])


@contextmanager
def _errors(doing: str) -> Iterator[None]:
    """Say in our words what obstore says; its own text may quote requests and is kept out."""
    from obstore import exceptions

    try:
        yield
    except StoreError:
        raise
    except (exceptions.NotFoundError, FileNotFoundError):
        raise NotFound(f"{doing}: there is none") from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        hint = "check the bucket's policy and the credentials"
        raise StoreUnavailable(f"{doing}: the object store refuses ({type(error).__name__})", hint=hint) from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise
    except exceptions.BaseError as error:
        raise StoreUnavailable(f"{doing}: {type(error).__name__}") from None
