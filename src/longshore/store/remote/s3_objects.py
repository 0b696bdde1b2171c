"""Objects in S3 and compatible stores, through obstore. A small object is created by a conditional put.

A large object is a multipart upload, which obstore cannot make conditional: the key is checked first, and a race writes
the same bytes twice. The server verifies the SHA-256 of the uploaded bytes.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

from longshore.domain.settings import S3Settings, revealed
from longshore.errors import BadInput, NotFound, StoreError, StoreUnavailable
from longshore.store.remote.object_store import Found
from longshore.store.remote.s3_unfinished_uploads import Credentials, Uploads
from longshore.store.staging.parts import Part

SINGLE_BYTES: Final = 8 << 20  # larger objects use multipart uploads
PROBE_CHUNK: Final = 5 << 20  # the smallest piece that S3 takes before the last
PROBE_BYTES: Final = PROBE_CHUNK + 1_000
_MOST_CHUNKS: Final = 9_000  # S3 allows 10,000
_CONCURRENCY: Final = 4  # chunks of one upload
_LARGE_AT_ONCE: Final = 2  # multipart uploads: this many times _CONCURRENCY chunks are in memory


@dataclass(frozen=True, slots=True)
class Bucket:
    """The location of the objects: `s3://bucket/prefix?endpoint=http://host:port&region=…`."""

    name: str
    prefix: str
    endpoint: str | None
    region: str

    @classmethod
    def parse(cls, where: str, settings: S3Settings) -> Bucket:
        """Parse a URL; the settings supply an endpoint or region that it does not contain."""
        url = urlsplit(where)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        if not url.hostname or url.username or url.password or set(query) - {"endpoint", "region"}:
            raise BadInput("an S3 store is s3://bucket/prefix, with ?endpoint=… and &region=… where needed")
        return cls(
            url.hostname,
            url.path.strip("/"),
            query.get("endpoint") or settings.endpoint,
            query.get("region") or settings.region or "us-east-1",
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of testing one feature that the store relies on."""

    name: str
    works: bool
    evidence: str
    level: Literal["warn", "fail"] = "fail"
    remedy: str | None = None


class S3Objects:
    """One prefix of one bucket."""

    backend = "s3"

    def __init__(self, where: str, settings: S3Settings) -> None:
        from obstore.store import S3Store

        self._bucket = bucket = Bucket.parse(where, settings)
        key_id = settings.access_key_id
        secret = revealed(settings.secret_access_key)
        config: dict[str, Any] = {"region": bucket.region, "checksum_algorithm": "SHA256"}
        if bucket.endpoint:
            config |= {"endpoint": bucket.endpoint, "virtual_hosted_style_request": False}
        if key_id and secret:
            config |= {"access_key_id": key_id, "secret_access_key": secret}
            if settings.session_token is not None:
                config["session_token"] = settings.session_token.reveal()
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
        self._chunk_bytes = settings.part_bytes
        self._large = threading.Semaphore(_LARGE_AT_ONCE)
        self._uploads = None
        if key_id and secret:
            credentials = Credentials(key_id, secret, revealed(settings.session_token), bucket.region)
            self._uploads = Uploads(bucket.name, bucket.endpoint, credentials)

    def _key(self, key: str) -> str:
        return f"{self._bucket.prefix}/{key}" if self._bucket.prefix else key

    def put(self, key: str, body: bytes | Part, content_type: str, *, aside: str | None = None) -> bool:
        """Create an object atomically and durably; return False if it exists. With `aside`, keep the old one there."""
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
        chunk = max(self._chunk_bytes, -(-len(data) // _MOST_CHUNKS))
        self._store.put(
            self._key(key),
            _chunks(data, chunk),
            attributes=attributes,
            use_multipart=True,
            chunk_size=chunk,
            max_concurrency=_CONCURRENCY,
        )
        if self.size(key) != len(data):
            raise StoreUnavailable("the stored object does not have the size that was sent")
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
        """Return an object's size."""
        try:
            with _errors("looking for a blob"):
                return int(self._store.head(self._key(key))["size"])
        except NotFound:
            return None

    def read(self, key: str, start: int, end: int) -> bytes:
        """Return a range of an object's bytes."""
        with _errors("reading a blob"):
            return bytes(self._store.get_range(self._key(key), start=start, end=end))

    def list(self, prefix: str) -> Iterator[Found]:
        """Yield every object whose key begins with `prefix`, in order. (obstore lists whole folders.)"""
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
        """Move an object to another key."""
        try:
            with _errors("moving a blob"):
                self._store.copy(self._key(key), self._key(target), overwrite=True)
        except NotFound:
            return False
        return self.delete(key)

    def delete(self, key: str) -> bool:
        """Remove an object; check first whether it exists, because S3 does not report it."""
        if self.size(key) is None:
            return False
        with _errors("removing a blob"):
            self._store.delete(self._key(key))
        return True

    def collect(self, older_than_s: float) -> int:
        """Abort unfinished multipart uploads under the store's prefix."""
        if self._uploads is None:
            return 0
        return self._uploads.abort_older(self._key(""), older_than_s)

    def probe(self) -> tuple[Trial, ...]:
        """Test the required S3 features with a few temporary objects."""
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
        return Trial("multipart", False, "the object read back is not equal", "fail", "large files would be damaged")

    def _try_unfinished(self) -> Trial:
        if self._uploads is None:
            told = "no key in the settings: unfinished uploads cannot be listed"
            return Trial("unfinished uploads", False, told, "warn", "set a lifecycle rule that aborts them")
        return Trial("unfinished uploads", True, f"{self._uploads.count(self._key(''))} listed")

    def close(self) -> None:
        """Do nothing: no resources are held."""


@contextmanager
def _buffer(body: bytes | Part) -> Iterator[memoryview]:
    """Yield the bytes of a body; a part is memory-mapped, not read into memory."""
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
    """Convert obstore's errors to `StoreError`, without their text, which may quote requests."""
    from obstore import exceptions

    try:
        yield
    except StoreError:
        raise
    except (exceptions.NotFoundError, FileNotFoundError):
        raise NotFound(f"{doing}: not found") from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        hint = "check the bucket's policy and the credentials"
        raise StoreUnavailable(f"{doing}: the object store refuses ({type(error).__name__})", hint=hint) from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise
    except exceptions.BaseError as error:
        raise StoreUnavailable(f"{doing}: {type(error).__name__}") from None
