"""`python -m bench [SET …]`: every peer and us, side by side, in one run."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench import report
from bench.peers import OURS
from bench.scenes import SCENES


def main() -> None:
    """Run the named sets, or all, and write bench/results/."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[[], *SCENES], default=[])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    missing = [
        tool for tool in ("curl", "wget2", "aria2c", "nginx") if not shutil.which(tool, path="/usr/bin:/usr/sbin:/bin")
    ]
    if missing:
        names = ["nginx-light" if name == "nginx" else "aria2" if name == "aria2c" else name for name in missing]
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *names], check=True)
    work = Path(tempfile.mkdtemp(prefix="longshore-bench-files-", dir="/var/tmp"))
    scenes = []
    try:
        for name in given.sets or list(SCENES):
            print(f"{name}: {(SCENES[name].__doc__ or '').strip()}", flush=True)
            scenes.append(SCENES[name](work, given.repeat))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(report.table(scenes, OURS))
    if not given.no_write:
        report.write(scenes, OURS)


if __name__ == "__main__":
    main()
