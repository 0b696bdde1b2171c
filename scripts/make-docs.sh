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
# Not --quiet: it hides the warnings from --strict too. (The variable silences the theme's notice about another program.)
if ! said=$(NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --clean 2>&1); then
  echo "$said" >&2
  exit 1
fi
.venv/bin/python -m scripts.check_site build/site
