"""Throw-away FTP (vsftpd) and SFTP (sshd) servers over one directory, on loopback, from the system's packages."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

VSFTPD = "/usr/sbin/vsftpd"
SSHD = "/usr/sbin/sshd"
_VSFTPD = """
listen=YES
listen_address=127.0.0.1
listen_port={port}
background=NO
anonymous_enable=YES
local_enable=NO
anon_root={root}
no_anon_password=YES
secure_chroot_dir={empty}
run_as_launching_user={unprivileged}
xferlog_enable=NO
seccomp_sandbox=NO
"""
_SSHD = """
ListenAddress 127.0.0.1
Port {port}
HostKey {home}/host_key
AuthorizedKeysFile {home}/authorized_keys
PidFile {home}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
LogLevel ERROR
"""


class _Server:
    """A process that listens on a port of its own."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="longshore-files-"))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        for _ in range(20):  # a free port may be taken before the server binds it
            self.port = _free_port()
            process = subprocess.Popen(self.command(), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            limit = time.monotonic() + 60
            while time.monotonic() < limit and process.poll() is None:
                if _greets(self.port):
                    self._process = process
                    return self
                time.sleep(0.02)
            process.kill()
            process.wait()
        raise RuntimeError(f"{self.command()[0]} does not start")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
        shutil.rmtree(self.home, ignore_errors=True)


class Ftp(_Server):
    """vsftpd, anonymous and read-only."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def command(self) -> list[str]:
        empty = self.home / "empty"
        empty.mkdir(exist_ok=True)
        unprivileged = "NO" if os.geteuid() == 0 else "YES"
        text = _VSFTPD.format(port=self.port, root=self.root, empty=empty, unprivileged=unprivileged)
        conf = self.home / "vsftpd.conf"
        conf.write_text(text)
        conf.chmod(0o600)
        return [VSFTPD, str(conf)]

    def url(self, name: str) -> str:
        return f"ftp://127.0.0.1:{self.port}/{name}"


class Sftp(_Server):
    """sshd with its own host key; `key` is the private key that it lets in, `known` a known_hosts file."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.key = self.home / "user_key"
        self.known = self.home / "known_hosts"
        self.user = getpass.getuser()
        for name in ("host_key", "user_key"):
            generate = [
                "ssh-keygen",
                "-q",
                "-t",
                "rsa",
                "-b",
                "2048",
                "-m",
                "PEM",
                "-N",
                "",
                "-f",
                str(self.home / name),
            ]
            subprocess.run(generate, check=True)
        shutil.copy(self.home / "user_key.pub", self.home / "authorized_keys")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's privilege separation wants it

    def command(self) -> list[str]:
        (self.home / "sshd.conf").write_text(_SSHD.format(port=self.port, home=self.home))
        kind, key, *_ = (self.home / "host_key.pub").read_text().split()
        self.known.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")
        return [SSHD, "-D", "-e", "-f", str(self.home / "sshd.conf")]

    def url(self, name: str) -> str:
        return f"sftp://{self.user}@127.0.0.1:{self.port}{self.root}/{name}"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _greets(port: int) -> bool:
    """Tell whether a server answers there with a first line: both protocols begin with one."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.settimeout(5)
            return bool(sock.recv(3))
    except OSError:
        return False
