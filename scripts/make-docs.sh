#!/usr/bin/env bash
# Build the documentation as a site into build/site, with an environment of its own; warnings fail the build.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-docs
if ! cmp -s requirements/docs.txt "$venv/installed.txt"; then
  [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv --without-pip "$venv"
  .venv/bin/uv pip sync --quiet --python "$venv/bin/python" --compile-bytecode --require-hashes requirements/docs.txt
  cp requirements/docs.txt "$venv/installed.txt"
fi
# The theme's advertisement for another program is not a warning about these pages.
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --quiet --strict --clean
.venv/bin/python -m scripts.check_site build/site
