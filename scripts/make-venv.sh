#!/usr/bin/env bash
# Create a virtual environment with the pinned packages and this project; only python3 is required.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "longshore needs Python 3.11 or newer" >&2; exit 1; }
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore uv
# Compile now: with PYTHONDONTWRITEBYTECODE every start would compile everything again (1.0 s instead of 0.4 s).
.venv/bin/uv pip install --quiet --python .venv/bin/python --compile-bytecode --require-hashes -r requirements/dev.txt
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps -e .
.venv/bin/python -m compileall -q src || true
