#!/usr/bin/env bash
# Newer qBittorrents beside the system's: qbittorrent.sh SUITE... unpacks the one of each Debian suite, with everything
# it needs, into a directory of its own. Nothing is installed into the system and no root is needed; packages come from
# the mirror that this machine uses and are verified by apt with Debian's own keys.
set -euo pipefail
home=${LONGSHORE_COMPONENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-components}
keys=/usr/share/keyrings/debian-archive-keyring.gpg

unpack() { # unpack SUITE DIRECTORY
  local suite=$1 work=$2 mirror deb
  # shellcheck disable=SC2016  # apt's own variable
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | sort -u | head -1)
  mkdir -p "$work"/{lists/partial,archives/partial,root}
  : >"$work/status"
  echo "deb [signed-by=$keys] ${mirror:-http://deb.debian.org/debian} $suite main" >"$work/sources"
  local apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::PreferencesParts=/dev/null -o "Dir::State::Lists=$work/lists" -o "Dir::State::Status=$work/status"
    -o "Dir::State::extended_states=$work/extended" -o "Dir::Cache=$work" -o "Dir::Cache::Archives=$work/archives"
    -o APT::Install-Recommends=0 -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::http::Timeout=30
    -o "APT::Sandbox::User=$(id -un)" -o Debug::NoLocking=1)
  "${apt[@]}" update
  "${apt[@]}" install -y --download-only qbittorrent-nox >/dev/null
  for deb in "$work"/archives/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
}

for suite in "$@"; do
  target=$home/qbittorrent-$suite
  [ -x "$target/usr/bin/qbittorrent-nox" ] && continue
  mkdir -p "$home"
  work=$(mktemp -d "$home/.unpacking.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  unpack "$suite" "$work"
  # Under its name only when it is whole; of two that unpack at once the first one stays.
  mv -T "$work/root" "$target" 2>/dev/null || [ -x "$target/usr/bin/qbittorrent-nox" ]
  rm -rf "$work"
done
