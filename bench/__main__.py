"""`python -m bench [SET …]`: every peer and us, side by side, in one run."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import report
from bench.peers import OURS
from bench.scenes import SCENES

PACKAGES = {"curl": "curl", "wget2": "wget2", "aria2c": "aria2", "nginx": "nginx-light", "openssl": "openssl"}


def install_peers() -> None:
    """Install what is missing from the system's packages."""
    missing = [name for tool, name in PACKAGES.items() if not shutil.which(tool, path="/usr/bin:/usr/sbin:/bin")]
    if not missing:
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise SystemExit(f"missing: {' '.join(missing)} (install them, or run as root)")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], check=True)


def main() -> None:
    """Run the named sets, or all, and write bench/results/."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[[], *SCENES], default=[])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave through `finally`: servers, mounts and files go too
    install_peers()
    work = Path(tempfile.mkdtemp(prefix="longshore-bench-files-", dir="/var/tmp"))
    scenes = []
    try:
        for name in given.sets or list(SCENES):
            print(f"{name}: {(SCENES[name].__doc__ or '').strip()}", flush=True)
            scenes.append(SCENES[name](work, given.repeat))
            if not given.no_write:
                report.write(scenes[-1], OURS)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(report.table(scenes, OURS))


if __name__ == "__main__":
    main()
