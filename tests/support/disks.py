"""Disks that fail: a file system whose power can be cut, and one that is small. Root only; skipped where mounts are not allowed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _run(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextlib.contextmanager
def _mounted(options: list[str], what: str) -> Iterator[Path]:
    where = tempfile.mkdtemp(prefix="longshore-disk-")
    if os.geteuid() != 0 or not _run("mount", *options, what, where):
        os.rmdir(where)
        pytest.skip("needs root and mounts")
    try:
        yield Path(where)
    finally:
        if not _run("umount", where):
            _run("umount", "-l", where)
        os.rmdir(where)


@contextlib.contextmanager
def small_disk(size: str = "1m", inodes: int = 0) -> Iterator[Path]:
    """Mount a tmpfs with a real end."""
    options = f"size={size}" + (f",nr_inodes={inodes}" if inodes else "")
    with _mounted(["-t", "tmpfs", "-o", options], "tmpfs") as where:
        yield where


class PowerCut:
    """An ext4 image in a file. What was not written to the device when the image is copied is lost in the copy."""

    def __init__(self, base: Path, mounted: Path) -> None:
        self._base = base
        self.root = mounted
        self._cuts = 0

    def cut(self) -> Path:
        """Copy the image as the power would leave it now."""
        self._cuts += 1
        copy = self._base / f"cut{self._cuts}"
        subprocess.run(["cp", "--sparse=always", str(self._base / "image"), str(copy)], check=True)
        return copy

    @contextlib.contextmanager
    def after(self, copy: Path) -> Iterator[Path]:
        """Mount a copy, which replays its journal."""
        with _mounted(["-o", "loop"], str(copy)) as where:
            yield where
        copy.unlink()


@contextlib.contextmanager
def power_cut_disk(megabytes: int = 24) -> Iterator[PowerCut]:
    """Mount a fresh ext4 image that writes nothing by itself for minutes."""
    base = Path(tempfile.mkdtemp(prefix="longshore-power-"))
    try:
        with (base / "image").open("wb") as file:
            file.truncate(megabytes << 20)
        if not _run("mkfs.ext4", "-q", "-F", "-O", "^resize_inode", str(base / "image")):
            pytest.skip("needs mkfs.ext4")
        with _mounted(["-o", "loop,commit=300,noatime"], str(base / "image")) as where:
            subprocess.run(["sync", "-f", str(where)], check=True)
            yield PowerCut(base, where)
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def filled(where: Path) -> Iterator[None]:
    """Leave no room on the small disk that a path is on, for as long as the block lasts; elsewhere do nothing."""
    disk = where.parent
    if shutil.disk_usage(disk).free > 1 << 30:
        yield
        return
    filler = disk / ".filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        yield
    finally:
        filler.unlink(missing_ok=True)
