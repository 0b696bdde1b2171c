"""Run one shell command and print its seconds, CPU seconds, largest resident set (KiB) and exit code.

A process of its own, and a small one: a child's largest resident set counts from before its exec, so that whoever starts
it must be small. `python -I -S stopwatch.py LOG COMMAND`.
"""

import os
import sys
import time

log, command = sys.argv[1:]
out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
started = time.perf_counter()
pid = os.posix_spawn(
    "/bin/bash",
    ["bash", "-c", "set -e\n" + command],
    dict(os.environ),
    file_actions=[(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)],
)
_, status, usage = os.wait4(pid, 0)
wall = time.perf_counter() - started
print(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
