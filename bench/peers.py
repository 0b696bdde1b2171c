"""Each peer as a shell command that fetches a list of URLs into the current directory, and ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

OURS = "longshore"
PROGRAM = f"{sys.executable} -m longshore"


@dataclass(frozen=True, slots=True)
class Peer:
    """A name and how to make its command from a list of URLs."""

    name: str
    command: Callable[[Path, Sequence[str]], str]


def write_curl_config(where: Path, urls: Sequence[str]) -> Path:
    """Write curl's own input file: one URL and one output name each."""
    config = where / "curl.conf"
    config.write_text("".join(f'url = "{url}"\noutput = "{number}.bin"\n' for number, url in enumerate(urls)))
    return config


def write_list(where: Path, urls: Sequence[str]) -> Path:
    """Write the plain list that the others read."""
    listing = where / "urls.txt"
    listing.write_text("".join(f"{url}\n" for url in urls))
    return listing


def curl(where: Path, urls: Sequence[str]) -> str:
    """Fetch with curl alone, 32 at once: nothing verified, nothing durable."""
    config = write_curl_config(where, urls)
    return f"mkdir -p out && cd out && curl -sS -Z --parallel-max 32 --no-progress-meter -K {config}"


def curl_hash_sync(where: Path, urls: Sequence[str]) -> str:
    """Do the same work as we must, without a ledger: fetch, hash all, make durable."""
    return curl(where, urls) + " && find . -type f -print0 | xargs -0 sha256sum > ../sums && sync -f ."


def wget2(where: Path, urls: Sequence[str]) -> str:
    """Fetch with wget2."""
    return f"mkdir -p out && cd out && wget2 -q --max-threads=32 --no-robots -x -i {write_list(where, urls)}"


def aria2c(where: Path, urls: Sequence[str]) -> str:
    """Fetch with aria2c as it is, 32 at once."""
    listing = where / "aria2.txt"
    listing.write_text("".join(f"{url}\n  out={number}.bin\n" for number, url in enumerate(urls)))
    return f"aria2c -q -d out -j32 --no-conf -i {listing}"


def longshore(where: Path, urls: Sequence[str]) -> str:
    """Take the list in and run it with a worker per core: ledger, hashes, full durability. Together the workers have as
    many connections to one host as the others have."""
    workers = os.cpu_count() or 1
    common = "--depot depot --allow-net 127.0.0.0/8 --set hosts.concurrency=32 -q"
    each = f"--workers {workers} --set transfer.concurrency={max(1, 32 // workers)}"
    return f"{PROGRAM} add {write_list(where, urls)} {common} && {PROGRAM} run {common} {each}"


def longshore_get(where: Path, urls: Sequence[str], *more: str) -> str:
    """Do all of it in one command: plan, fetch, verify, publish. What is held is not asked for again."""
    common = f"--depot depot --allow-net 127.0.0.0/8 --set hosts.concurrency=32 {' '.join(more)} -q"
    return f"{PROGRAM} get -i {write_list(where, urls)} {common}"


def longshore_split(where: Path, urls: Sequence[str]) -> str:
    """The same with one body over as many connections as aria2c is told to use."""
    return longshore_get(where, urls, "--set transfer.segments=16")


def aria2c_split(where: Path, urls: Sequence[str]) -> str:
    """Fetch one body over 16 connections with aria2c's own splitting."""
    return f"aria2c -q -d out --no-conf -x16 -s16 '{urls[0]}'"


def aria2c_split_1m(where: Path, urls: Sequence[str]) -> str:
    """Fetch one body over 16 connections, pieces of 1 MiB allowed."""
    return f"aria2c -q -d out --no-conf -x16 -s16 -k1M '{urls[0]}'"


def curl_sync(where: Path, urls: Sequence[str]) -> str:
    """Fetch one body and make it durable."""
    return f"mkdir -p out && curl -sS -o out/0.bin '{urls[0]}' && sync -f out"


CURL, CURL_HASH_SYNC = Peer("curl -Z", curl), Peer("curl -Z + sha256sum + sync", curl_hash_sync)
WGET2, ARIA2C, LONGSHORE = Peer("wget2", wget2), Peer("aria2c", aria2c), Peer(OURS, longshore)
ARIA2C_16, ARIA2C_16_1M = Peer("aria2c -x16 -s16", aria2c_split), Peer("aria2c -x16 -s16 -k1M", aria2c_split_1m)
LONGSHORE_GET, LONGSHORE_16 = Peer(OURS, longshore_get), Peer(OURS, longshore_split)
CURL_SYNC = Peer("curl + sync", curl_sync)


def curl_again(where: Path, urls: Sequence[str]) -> str:
    """Ask for each file whether it changed (`-z`)."""
    config = where / "curl-z.conf"
    lines = [f'url = "{url}"\noutput = "{n}.bin"\ntime-cond = "{n}.bin"\n' for n, url in enumerate(urls)]
    config.write_text("next\n".join(lines))
    return f"cd out && curl -sS -Z --parallel-max 32 --no-progress-meter -K {config}"


def wget2_again(where: Path, urls: Sequence[str]) -> str:
    """Ask again with wget2 -c."""
    return f"cd out && wget2 -q -c --max-threads=32 --no-robots -x -i {where / 'urls.txt'}"


def aria2c_again(where: Path, urls: Sequence[str]) -> str:
    """Ask again with aria2c -c."""
    return f"aria2c -q -c -d out -j32 --no-conf -i {where / 'aria2.txt'}"
