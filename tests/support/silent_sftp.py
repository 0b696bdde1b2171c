"""An SFTP server of one file, which stops answering where the test says."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

import asyncssh

from longshore.domain.settings import CredentialSettings
from tests.support.settings import login

_MTIME = 1_577_836_800


class SilentSftp:
    """Serves `data` under every name. From `silent_at` on it does not answer: "read" (in the middle) or "close"."""

    def __init__(self, data: bytes, silent_at: str = "") -> None:
        self.data, self.silent_at = data, silent_at
        self.opened = 0
        self.connections = 0
        self.reached = threading.Event()  # the request that gets no answer has come
        self.login: CredentialSettings = login(username="u", password="p")
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.port = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="silent-sftp", daemon=True).start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def url(self, name: str = "f") -> str:
        return f"sftp://127.0.0.1:{self.port}/{name}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        outer = self

        class Door(asyncssh.SSHServer):
            def connection_made(self, conn: Any) -> None:
                outer.connections += 1

            def begin_auth(self, username: str) -> bool:
                return True

            def password_auth_supported(self) -> bool:
                return True

            def validate_password(self, username: str, password: str) -> bool:
                return (username, password) == ("u", "p")

        key = asyncssh.generate_private_key("ssh-ed25519")
        self._server = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Door, server_host_keys=[key], sftp_factory=lambda chan: _Files(chan, outer)
        )
        self.port = self._server.get_port()

    async def pause(self, where: str) -> None:
        """Never return, if the server is silent here."""
        if self.silent_at == where:
            self.reached.set()
            await asyncio.Event().wait()


class _Files(asyncssh.SFTPServer):
    def __init__(self, chan: Any, server: SilentSftp) -> None:
        super().__init__(chan)
        self._silent = server

    async def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return asyncssh.SFTPAttrs(size=len(self._silent.data), permissions=0o100644, mtime=_MTIME, atime=_MTIME)

    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return await self.stat(path)

    async def fstat(self, file_obj: object) -> asyncssh.SFTPAttrs:
        return await self.stat(b"")

    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        self._silent.opened += 1
        return object()

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        if offset > len(self._silent.data) // 2:
            await self._silent.pause("read")
        return self._silent.data[offset : offset + size]

    async def close(self, file_obj: object) -> None:
        await self._silent.pause("close")
