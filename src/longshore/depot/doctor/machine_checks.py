"""The checks of `doctor` on the machine."""

from __future__ import annotations

import os
import resource
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Final

from longshore.config import CONFIG_FILE, Settings
from longshore.depot.doctor.check import Check, CheckFunction, existing

OLDEST_SQLITE: Final = (3, 51, 3)
NETWORK_DISKS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "lustre", "gpfs", "afs"})
MEMORY_DISKS: Final = frozenset({"tmpfs", "ramfs"})
PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
PROBE_HOST: Final = "example.org"
ANSWER_S: Final = 5.0


def check_sqlite(_: Settings) -> Check:
    """Check SQLite's version: older ones can corrupt a WAL database when several connections write."""
    import apsw

    have = apsw.sqlite_lib_version()
    if tuple(int(part) for part in have.split(".")[:3]) < OLDEST_SQLITE:
        return Check("sqlite", "fail", f"SQLite {have}", "pip install -U apsw")
    return Check("sqlite", "ok", f"SQLite {have}")


def check_curl(_: Settings) -> Check:
    """Check libcurl's version and features."""
    import pycurl

    version = pycurl.version_info()
    missing = {"http", "https"} - set(version[8])
    if missing:
        return Check("libcurl", "fail", f"libcurl {version[1]} cannot {', '.join(sorted(missing))}", "reinstall pycurl")
    return Check("libcurl", "ok", f"libcurl {version[1]}, {version[5]}")


def check_configuration(settings: Settings) -> Check:
    """Check that a file with secrets is readable by its owner only."""
    path = os.path.join(settings.depot, CONFIG_FILE)
    if not os.path.exists(path):
        return Check("configuration", "ok", f"no {path}; defaults and environment")
    if os.stat(path).st_mode & 0o077 and "password" in open(path, encoding="utf-8").read():  # noqa: SIM115
        return Check("configuration", "warn", f"others can read {path}", f"chmod 600 {path}")
    return Check("configuration", "ok", path)


def check_disk(settings: Settings) -> Check:
    """Check the file system: locks and fsync are unreliable on network file systems, and tmpfs is not durable."""
    where = existing(settings.depot)
    kind = filesystem_of(where)
    if kind in NETWORK_DISKS:
        return Check("disk", "warn", f"{where} is on {kind}", "keep the ledger on a local disk, or use PostgreSQL")
    if kind in MEMORY_DISKS:
        return Check("disk", "warn", f"{where} is on {kind}: gone at the next boot", "name a disk with --depot")
    return Check("disk", "ok", f"{where} is on {kind}")


def filesystem_of(path: str) -> str:
    """Return the type of the file system that holds a path."""
    path, best, kind = os.path.realpath(path), "", "unknown"
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            for line in file:
                _, point, one, *_ = line.split()
                point = point.encode().decode("unicode_escape")
                if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
                    best, kind = point, one
    except OSError:
        pass
    return kind


def check_fsync(settings: Settings) -> Check:
    """Time some fsyncs: one that returns too fast did not reach the disk."""
    where = existing(settings.depot)
    times = []
    with tempfile.TemporaryFile(dir=where) as file:
        for _ in range(10):
            file.write(b"x" * 4096)
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    median = statistics.median(times) * 1000
    evidence = f"fsync takes {median:.2f} ms (median of 10)"
    if median > 200:
        return Check("fsync", "warn", evidence, "a slow disk; many small files will wait for it")
    if median < 0.01 and filesystem_of(where) not in MEMORY_DISKS:
        return Check("fsync", "warn", evidence, "too fast to be true: does the disk's cache survive power loss?")
    return Check("fsync", "ok", evidence)


def check_space(settings: Settings) -> Check:
    """Check the free space above the reserve that is never used."""
    where = existing(settings.depot if "://" in settings.store else settings.store)
    room = os.statvfs(where)
    free = room.f_bavail * room.f_frsize
    inodes = f", {room.f_favail:,} inodes" if room.f_files else ""
    evidence = f"{free / (1 << 30):,.1f} GiB free{inodes} at {where}"
    if free < settings.quota.free_bytes_min:
        return Check("space", "fail", evidence, "make room: quota.free_bytes_min stops all work")
    if room.f_files and room.f_favail < 10_000:
        return Check("space", "warn", evidence, "make room for more files")
    return Check("space", "ok", evidence)


def check_open_files(settings: Settings) -> Check:
    """Check the limit of open files: each transfer needs a socket and perhaps a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = 4 * settings.transfer.concurrency + 64
    if soft != resource.RLIM_INFINITY and soft < need:
        return Check("open_files", "warn", f"limit {soft} (hard {hard}), {need} wanted", f"ulimit -n {need}")
    return Check("open_files", "ok", f"limit {soft}")


def check_names(settings: Settings) -> Check:
    """Check that names can be resolved, and how fast."""
    if settings.offline:
        return Check("dns", "skip", "offline")
    answer = _within(lambda: _resolve(PROBE_HOST))
    if answer is None:
        return Check("dns", "warn", f"no answer for {PROBE_HOST} within {ANSWER_S:g} s", "check the resolver")
    if isinstance(answer, OSError):
        return Check("dns", "warn", f"{PROBE_HOST}: {answer.strerror or answer}", "check the network and the resolver")
    return Check("dns", "ok", f"{PROBE_HOST} resolved in {answer * 1000:.0f} ms")


def _resolve(host: str) -> float | OSError:
    import socket

    start = time.perf_counter()
    try:
        socket.getaddrinfo(host, 443)
    except OSError as error:
        return error
    return time.perf_counter() - start


def _within(call: Callable[[], float | OSError]) -> float | OSError | None:
    answers: list[float | OSError] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    return answers[0] if answers else None


def check_tls(settings: Settings) -> Check:
    """Check that there are certificate authorities to trust."""
    chosen = settings.network.ca_file
    try:
        context = ssl.create_default_context(cafile=chosen)
    except (OSError, ssl.SSLError) as error:
        return Check("tls", "fail", f"{chosen}: {error}", "check network.ca_file")
    count = context.cert_store_stats()["x509_ca"]
    paths = ssl.get_default_verify_paths()
    where = chosen or paths.cafile or paths.capath or "nowhere"
    if not count and not (paths.capath and os.path.isdir(paths.capath) and os.listdir(paths.capath)):
        return Check("tls", "warn", f"no certificate authorities in {where}", "install ca-certificates")
    return Check("tls", "ok", f"{count or 'several'} authorities from {where}")


def check_proxies(settings: Settings) -> Check:
    """Warn about proxies in the environment: only a configured proxy is used."""
    found = sorted({name for name in PROXIES if os.environ.get(name)})
    if settings.network.proxy:
        return Check("proxy", "ok", "network.proxy is set")
    if found:
        return Check("proxy", "warn", f"{', '.join(found)} set, and not used", "set network.proxy if you need one")
    return Check("proxy", "ok", "none")


MACHINE_CHECKS: Final[dict[str, CheckFunction]] = {
    "sqlite": check_sqlite,
    "libcurl": check_curl,
    "configuration": check_configuration,
    "disk": check_disk,
    "fsync": check_fsync,
    "space": check_space,
    "open_files": check_open_files,
    "dns": check_names,
    "tls": check_tls,
    "proxy": check_proxies,
}
