"""Objects in PostgreSQL, stored as rows of chunks: one transaction writes each object atomically."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from longshore.domain.policy.disk_space import Lack
from longshore.errors import DiskFull, NotFound, StoreError, StoreUnavailable
from longshore.store.remote.object_store import QUARANTINE, Found
from longshore.store.staging.parts import Part

PIECE_BYTES: Final = 1 << 20
_PAGE: Final = 1000
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def _statements() -> dict[str, Any]:
    pieces = _NAME.split(files("longshore.store").joinpath("sql/postgres.sql").read_text(encoding="utf-8"))
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


SQL: Final = _statements()


class PostgresObjects:
    """The tables of one database."""

    backend = "postgres"

    def __init__(self, where: str, timeout_s: float = 20) -> None:
        self._pool = ConnectionPool(where, min_size=0, max_size=8, timeout=timeout_s, open=True, name="longshore-store")
        try:
            with self._connection("opening the store") as connection:
                there, secured = connection.execute(SQL["exists"]).fetchone() or (False, False)
                if not there:
                    connection.execute(SQL["create"])
                if not secured:
                    connection.execute(SQL["secure"])
        except BaseException:
            self._pool.close()
            raise

    @contextmanager
    def _connection(self, doing: str, key: str | None = None) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection in a transaction that sees the blobs of the key's tenant only.

        The name of the tenant goes along with the first statement: it costs no round trip. The driver's error text is
        omitted, because it may contain a password.
        """
        try:
            with self._pool.connection() as connection:
                if key is None:
                    yield connection
                    return
                with connection.pipeline():
                    connection.execute(SQL["enter"], {"tenant": tenant_of(key)})
                    yield connection
        except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory):
            raise DiskFull(f"{doing}: the database has no room", lack=Lack.PROMISED) from None  # on another host
        except (psycopg.Error, PoolTimeout) as error:
            raise StoreUnavailable(f"{doing}: {type(error).__name__}") from None

    def put(self, key: str, body: bytes | Part, content_type: str, *, aside: str | None = None) -> bool:
        """Create an object atomically and durably; return False if it exists. With `aside`, keep the old one there."""
        size = len(body) if isinstance(body, bytes) else body.size_bytes
        with self._connection("putting a blob", key) as connection:
            if aside is not None:
                connection.execute(SQL["move"], {"key": key, "target": aside})
            facts = {"key": key, "size": size, "content_type": content_type}
            if connection.execute(SQL["add_object"], facts).fetchone() is None:
                return False
            rows = ({"key": key, "ordinal": n, "data": data} for n, data in enumerate(_pieces(body, size)))
            connection.cursor().executemany(SQL["add_piece"], rows)
        return True

    def size(self, key: str) -> int | None:
        """Return an object's size."""
        with self._connection("looking for a blob", key) as connection:
            row = connection.execute(SQL["size"], {"key": key}).fetchone()
        return None if row is None else int(row[0])

    def read(self, key: str, start: int, end: int) -> bytes:
        """Return a range of an object's bytes."""
        first, last = start // PIECE_BYTES, (end - 1) // PIECE_BYTES
        with self._connection("reading a blob", key) as connection:
            rows = connection.execute(SQL["read"], {"key": key, "first": first, "last": last}, binary=True).fetchall()
        if len(rows) != last - first + 1:
            raise NotFound("reading a blob: a piece is missing")
        data = b"".join(row[0] for row in rows)
        skip = start - first * PIECE_BYTES
        return data[skip : skip + end - start]

    def list(self, prefix: str) -> Iterator[Found]:
        """Yield every object whose key begins with `prefix`, in order, without holding a snapshot."""
        after = ""
        while True:
            with self._connection("listing blobs", prefix) as connection:
                # Keys are printable ASCII, so DEL sorts after all their characters.
                page = {"after": after, "prefix": prefix, "beyond": prefix + "\x7f", "limit": _PAGE}
                rows = connection.execute(SQL["list"], page).fetchall()
            yield from (Found(*row) for row in rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def move(self, key: str, target: str) -> bool:
        """Move an object to another key."""
        return self._changed("move", "moving a blob", {"key": key, "target": target})

    def delete(self, key: str) -> bool:
        """Remove an object."""
        return self._changed("delete", "removing a blob", {"key": key})

    def _changed(self, statement: str, doing: str, facts: dict[str, str]) -> bool:
        with self._connection(doing, facts["key"]) as connection:
            return connection.execute(SQL[statement], facts).fetchone() is not None

    def collect(self, older_than_s: float) -> int:
        """Return 0: an unfinished transaction leaves nothing behind."""
        return 0

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def tenant_of(key: str) -> str:
    """Return the encoded tenant of a key; `*` for a prefix that is no tenant's, as of a walk over the whole store."""
    pieces = key.removeprefix(QUARANTINE).split("/")
    if len(pieces) > 1:
        return pieces[0]
    return "" if key and key != QUARANTINE else "*"


def _pieces(body: bytes | Part, size: int) -> Iterator[bytes]:
    for start in range(0, size, PIECE_BYTES):
        length = min(PIECE_BYTES, size - start)
        piece = body[start : start + length] if isinstance(body, bytes) else os.pread(body.fd, length, start)
        if len(piece) != length:
            raise StoreError("the part is shorter than announced")
        yield piece
