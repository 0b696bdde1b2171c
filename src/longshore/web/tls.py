"""TLS of the service: a certificate and its key, read again when the files change or on SIGHUP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
from contextlib import suppress
from typing import Final

from longshore.errors import BadInput

log = logging.getLogger("longshore.web")
LOOK_S: Final = 30.0


class Tls:
    """The context of a server. New connections use the newest certificate; open ones keep theirs."""

    def __init__(self, certificate: str, key: str) -> None:
        self._files = (certificate, key or certificate)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            raise BadInput(
                f"the certificate cannot be used: {certificate}: {error.strerror or error}",
                hint="serve.tls_certificate is a PEM file with the chain, serve.tls_key its key without a passphrase",
            ) from None

    def _load(self) -> None:
        stamp = self._stamp()
        # Tried first: a pair that does not fit must not replace the one that works. (No passphrase is ever asked for.)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files, password=lambda: "")
        self.context.load_cert_chain(*self._files, password=lambda: "")
        self._loaded = stamp

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        found = (os.stat(path) for path in self._files)
        return tuple((facts.st_mtime_ns, facts.st_ino) for facts in found)

    def reload(self) -> None:
        """Read the files again; keep the old certificate if they cannot be used."""
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            log.error("the certificate was not read again, the old one stays: %s", error)
        else:
            log.info("the certificate was read again")

    async def keep_fresh(self) -> None:
        """Read the files again on SIGHUP and when they change."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                with suppress(OSError):  # a file that is being replaced
                    if self._stamp() != self._loaded:
                        self.reload()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
