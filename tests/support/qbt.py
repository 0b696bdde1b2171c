"""A real qBittorrent, a real seeder and a small tracker, all on loopback and in directories of their own.

No DHT, no local discovery, no peer exchange, no port mapping: the only address any of them talks to is 127.0.0.1.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import http.server
import importlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

PASSWORD = "test-only-password"
# Which real client: the system's 4.5, and those of two newer Debian suites, which scripts/qbittorrent.sh unpacks.
SUITES = {"v4": "", "v5": "trixie", "newest": "sid"}
T = TypeVar("T")


def command(version: str) -> list[str]:
    """Give the command that runs a client: a newer one brings its own libraries and its own loader."""
    if not SUITES[version]:
        return [shutil.which("qbittorrent-nox") or "/usr/bin/qbittorrent-nox"]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = Path(os.environ.get("LONGSHORE_COMPONENTS") or Path(cache, "longshore-components"))
    root = home / f"qbittorrent-{SUITES[version]}"
    program = root / "usr/bin/qbittorrent-nox"
    if not program.exists():
        missing = f"there is no qBittorrent in {root}; `scripts/qbittorrent.sh {SUITES[version]}` unpacks it"
        assert os.environ.get("CI") != "true", missing
        pytest.skip(missing)
    loader = next(root.glob("usr/lib/*/ld-linux*.so.*"))
    return [str(loader), "--library-path", f"{loader.parent}:{loader.parent}/libproxy", str(program)]


def until(what: str, ask: Callable[[], T], limit_s: float = 60.0) -> T:
    """Ask again and again until the answer is truthy; the limit is for broken code, not for slow machines."""
    end = time.monotonic() + limit_s
    while True:
        if answer := ask():
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"still waiting for: {what}")
        time.sleep(0.03)


_reserved: list[int] = []  # descriptors of locked files: a port stays ours until this process ends


def _free_port() -> int:
    """Give a port that stays free while its server is down: outside the ephemeral range, and locked against others."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = range(low - 12_000, low) if low > 13_100 else range(high + 1, 65_536)
    folder = Path(tempfile.gettempdir(), "longshore-test-ports")
    folder.mkdir(exist_ok=True)
    while True:
        port = random.SystemRandom().choice(ports)
        lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        _reserved.append(lock)
        return port


def _pbkdf2(password: str) -> str:
    salt = b"longshore-tests!"
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 100_000, 64)
    return f"@ByteArray({base64.b64encode(salt).decode()}:{base64.b64encode(key).decode()})"


_CONF = r"""[LegalNotice]
Accepted=true

[AutoRun]
enabled=false

[BitTorrent]
Session\AddTorrentPaused=false
Session\AddTorrentStopped=false
Session\DefaultSavePath={save}
Session\TempPath={root}/incomplete
Session\TempPathEnabled={temp}
Session\DHTEnabled=false
Session\LSDEnabled=false
Session\PeXEnabled=false
Session\Interface=lo
Session\InterfaceName=lo
Session\InterfaceAddress=127.0.0.1
Session\Port={bt_port}
Session\BTProtocol=TCP
Session\QueueingSystemEnabled=false
Session\MultiConnectionsPerIp=true
Session\RefreshInterval=100
Session\SaveResumeDataInterval=1
Session\Preallocation=false
Session\StopTrackerTimeout=1
Session\GlobalMaxRatio=-1
Session\DisableAutoTMMByDefault=true

[Core]
AutoDeleteAddedTorrentFile=Never

[Network]
PortForwardingEnabled=false

[Preferences]
General\Locale=en
WebUI\Enabled=true
WebUI\Address=127.0.0.1
WebUI\Port={web_port}
WebUI\UseUPnP=false
WebUI\LocalHostAuth=true
WebUI\Username=admin
WebUI\Password_PBKDF2="{password}"
WebUI\CSRFProtection=false
WebUI\HostHeaderValidation=true
WebUI\SessionTimeout=3600
WebUI\MaxAuthenticationFailCount={max_fail}
Connection\ResolvePeerCountries=false

[RSS]
Session\EnableProcessing=false

[Meta]
MigrationVersion=4
"""


class Qbt:
    """One qbittorrent-nox with its own profile; `start` after `stop` or `kill` continues with the same profile."""

    def __init__(self, root: Path, *, version: str = "v4", max_fail: int = 5, temp: bool = False) -> None:
        self.root, self.version = root, version
        self.save = root / "save"
        self.save.mkdir(parents=True)
        (root / "incomplete").mkdir()
        self._max_fail, self._temp = max_fail, temp
        self.web_port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._configure()

    def _configure(self) -> None:
        folder = self.root / "profile/qBittorrent/config"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "qBittorrent.conf").write_text(
            _CONF.format(
                save=self.save,
                root=self.root,
                temp=str(self._temp).lower(),
                bt_port=_free_port(),
                web_port=self.web_port,
                password=_pbkdf2(PASSWORD),
                max_fail=self._max_fail,
            )
        )

    @property
    def generation(self) -> str:
        """How the client's own name for its version begins."""
        return "v4." if self.version == "v4" else "v5."

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    def start(self) -> None:
        """Start and wait until the Web API answers; a port that was taken meanwhile is exchanged."""
        for attempt in range(5):
            self._spawn()
            if self._answers():
                return
            self.kill()
            if attempt == 0:
                continue  # the same port once more: a restart must keep its address if it can
            self.web_port = _free_port()
            self._configure()
        raise AssertionError(f"qbittorrent-nox does not start: {(self.root / 'stdout.log').read_text()[-2000:]}")

    def _spawn(self) -> None:
        with open(self.root / "stdout.log", "ab") as log:
            self.process = subprocess.Popen(
                [*command(self.version), f"--profile={self.root}/profile"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.root),
                    "LANG": "C.UTF-8",
                    "QT_LOGGING_RULES": "*=false",
                },
                start_new_session=True,
            )

    def _answers(self) -> bool:
        assert self.process is not None
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                with socket.create_connection(("127.0.0.1", self.web_port), 1) as link:
                    link.sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n" % self.web_port)
                    if link.recv(1):
                        return True
            time.sleep(0.03)
        return False

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def saved(self, torrent_id: str) -> bool:
        """Tell whether a restart would know the torrent: the client shows it some milliseconds before it is saved, and
        goes on saving for some after it was removed."""
        return (self.root / "profile/qBittorrent/data/BT_backup" / f"{torrent_id}.fastresume").exists()

    def api(self) -> Any:
        """Give a plain client of the library, for what the test itself does to qBittorrent."""
        import qbittorrentapi

        return qbittorrentapi.Client(
            host=self.url,
            username="admin",
            password=PASSWORD,
            SIMPLE_RESPONSES=True,
            REQUESTS_ARGS={"timeout": (10, 60), "proxies": {"http": "", "https": ""}},
        )


class Tracker:
    """An HTTP tracker. Its path is /announce: libtorrent takes no other one on loopback."""

    def __init__(self) -> None:
        self.peers: dict[bytes, set[int]] = {}
        tracker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                body = tracker.announce(urllib.parse.urlsplit(self.path).query)
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/announce"

    def announce(self, query: str) -> bytes:
        fields = {}
        for field in query.split("&"):
            name, _, value = field.partition("=")
            fields[name] = urllib.parse.unquote_to_bytes(value)
        port = int(fields["port"])
        peers = self.peers.setdefault(fields["info_hash"], set())
        (peers.discard if fields.get("event") == b"stopped" else peers.add)(port)
        packed = b"".join(socket.inet_aton("127.0.0.1") + struct.pack(">H", p) for p in list(peers) if p != port)
        return b"d8:intervali2e12:min intervali1e5:peers%d:%se" % (len(packed), packed)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True)
class Made:
    """A torrent that was made for a test."""

    data: bytes
    v1: str | None
    v2: str | None
    magnet: str
    path: Path

    @property
    def id(self) -> str:
        """The id that the client gives it."""
        return (self.v2 or "")[:40] or str(self.v1)

    @property
    def v1_magnet(self) -> str:
        """The magnet link that knows only the old hash, as most sites give it."""
        assert self.v1 is not None
        trackers = [part for part in self.magnet.split("&") if part.startswith("tr")]
        return "&".join([f"magnet:?xt=urn:btih:{self.v1}", *trackers])


def make_torrent(
    path: Path, *, version: str = "v1", trackers: Sequence[str] = (), piece: int = 16 * 1024, names: Sequence[str] = ()
) -> Made:
    """Make a .torrent of a file or a folder; `names` replaces the files' names inside it (hostile ones)."""
    lt: Any = importlib.import_module("libtorrent")
    storage = lt.file_storage()
    lt.add_files(storage, str(path))
    for index, name in enumerate(names):
        storage.rename_file(index, name)
    flags = {"v1": lt.create_torrent.v1_only, "v2": lt.create_torrent.v2_only, "hybrid": 0}[version]
    torrent = lt.create_torrent(storage, piece, flags)
    for tracker in trackers:
        torrent.add_tracker(tracker)
    lt.set_piece_hashes(torrent, str(path.parent))
    data = lt.bencode(torrent.generate())
    info = lt.torrent_info(lt.bdecode(data))
    hashes = info.info_hashes()
    return Made(
        data=data,
        v1=str(hashes.v1) if hashes.has_v1() else None,
        v2=str(hashes.v2) if hashes.has_v2() else None,
        magnet=lt.make_magnet_uri(info),
        path=path,
    )


class Seeder:
    """A libtorrent session that has the files."""

    def __init__(self) -> None:
        self._lt: Any = importlib.import_module("libtorrent")
        self._session = self._lt.session(
            {
                "listen_interfaces": "127.0.0.1:0",
                "enable_dht": False,
                "enable_lsd": False,
                "enable_upnp": False,
                "enable_natpmp": False,
                "enable_incoming_utp": False,
                "enable_outgoing_utp": False,
                "allow_multiple_connections_per_ip": True,
                "stop_tracker_timeout": 1,
                "alert_mask": 0,
            }
        )

    def seed(self, made: Made) -> Any:
        params = self._lt.add_torrent_params()
        params.ti = self._lt.torrent_info(self._lt.bdecode(made.data))
        params.save_path = str(made.path.parent)
        params.flags |= self._lt.torrent_flags.seed_mode
        params.flags &= ~self._lt.torrent_flags.auto_managed
        params.flags &= ~self._lt.torrent_flags.paused
        return self._session.add_torrent(params)

    def close(self) -> None:
        self._session.pause()
        del self._session


@dataclass(frozen=True)
class Swarm:
    """A client, a seeder and the tracker through which they meet."""

    qbt: Qbt
    tracker: Tracker
    seeder: Seeder
    files: Path

    def make(self, name: str, content: bytes | dict[str, bytes], *, version: str = "v1", seed: bool = True) -> Made:
        """Make a torrent of these bytes and seed it; every test takes a name of its own."""
        path = self.files / name / name
        path.parent.mkdir(parents=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            for inner, body in content.items():
                (path / inner).parent.mkdir(parents=True, exist_ok=True)
                (path / inner).write_bytes(body)
        made = make_torrent(path, version=version, trackers=[self.tracker.url])
        if seed:
            self.seeder.seed(made)
        return made


@contextlib.contextmanager
def swarm(root: Path, **options: Any) -> Iterator[Swarm]:
    """Run all three; the tracker outlives the others, which say goodbye to it."""
    (root / "files").mkdir(parents=True)
    tracker = Tracker()
    try:
        qbt = Qbt(root / "qbt", **options)
        seeder = Seeder()
        try:
            qbt.start()
            yield Swarm(qbt, tracker, seeder, root / "files")
        finally:
            qbt.stop()
            seeder.close()
    finally:
        tracker.close()
