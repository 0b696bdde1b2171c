#!/usr/bin/env bash
# Install the servers that the tests use from the system's packages, or list the missing ones if not permitted.
set -euo pipefail
missing=()
need() { # need PACKAGE PATH...: the package, and one of its files
  local package=$1; shift
  for path in "$@"; do compgen -G "$path" >/dev/null && return; done
  missing+=("$package")
}
need postgresql '/usr/lib/postgresql/*/bin/postgres'
need nginx-light /usr/sbin/nginx
need strace /usr/bin/strace
need qbittorrent-nox /usr/bin/qbittorrent-nox
need chromium /usr/bin/chromium
need iproute2 /usr/bin/ip /sbin/ip
need e2fsprogs /sbin/mkfs.ext4 /usr/sbin/mkfs.ext4
need vsftpd /usr/sbin/vsftpd
need openssh-server /usr/sbin/sshd
need tmux /usr/bin/tmux
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  # A server installed for tests must not start automatically.
  policy=/usr/sbin/policy-rc.d; made=
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy; chmod +x $policy; made=1; }
  trap '[ -z "$made" ] || rm -f $policy' EXIT
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  exit 0
fi
echo "missing for the tests: ${missing[*]} (install them, or run as root)" >&2
[ "${CI:-}" != true ]
