#!/usr/bin/env bash
# Run the suite without servers on every Python from 3.11 on that this machine has, and on the newer one of each Debian suite
# that is named: test-pythons.sh [SUITE...]. A Python that is not installed is unpacked beside the system's.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/unpack-debian.sh
root=$PWD
tests=(tests/domain tests/lists tests/config tests/depot tests/exports tests/ledger tests/cli tests/test_rules.py)

installed() { # the path of python3.N, if there is one
  local version=$1 found
  found=$(compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version.*/bin/python3" | sort -V | tail -1)
  [ -n "$found" ] && echo "$found" && return
  command -v "python$version" || true
}

from_debian() { # unpack a suite's Python and print a wrapper that runs it with its own loader and libraries
  local suite=$1 base=$home/python-$1 program loader wrapper
  unpacked "$suite" python usr/bin/python3 python3 python3-venv >&2
  program=$(readlink -f "$base/usr/bin/python3")
  loader=$(compgen -G "$base/usr/lib/*/ld-linux*.so.*" | head -1)
  wrapper=$base/python3
  printf '#!/bin/sh\nPYTHONHOME="%s/usr" exec "%s" --argv0 "$0" --library-path "%s" "%s" "$@"\n' "$base" "$loader" "${loader%/*}" \
    "$program" >"$wrapper"
  chmod +x "$wrapper"
  echo "$wrapper"
}

check() { # run the suite with one Python, its packages in a folder of its own
  local python=$1 version folder
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  folder=$root/build/pythons/$version
  echo "== Python $version ($python)"
  .venv/bin/uv pip install --quiet --python .venv/bin/python --python-version "$version" --only-binary :all: --no-binary pyftpdlib \
    --target "$folder" --no-verify-hashes -r requirements/dev.in -c requirements/dev.txt
  PYTHONPATH="$folder:$root/src:$root" "$python" -m pytest -n "${JOBS:-2}" --dist worksteal \
    -m "not torture and not servers" "${tests[@]}"
}

for version in 3.11 3.12 3.13 3.14; do
  python=$(installed "$version")
  [ -n "$python" ] && check "$python"
done
for suite in "$@"; do check "$(from_debian "$suite")"; done
