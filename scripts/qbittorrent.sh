#!/usr/bin/env bash
# Unpack newer versions of qBittorrent: qbittorrent.sh SUITE... unpacks the one of each Debian suite, with its
# dependencies, into a separate directory. Nothing is installed into the system and root is not required; packages come
# from this machine's Debian mirror and are verified by apt with Debian's keys.
set -euo pipefail
home=${LONGSHORE_COMPONENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-components}
keys=/usr/share/keyrings/debian-archive-keyring.gpg

unpack() { # unpack SUITE DIRECTORY
  local suite=$1 work=$2 mirror deb
  # shellcheck disable=SC2016  # apt's own variable
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | sort -u | head -1)
  [ -n "$mirror" ] || { echo "qbittorrent.sh: apt on this machine names no Debian archive; add one to its sources" >&2; exit 1; }
  mkdir -p "$work"/{lists/partial,archives/partial,root}
  : >"$work/status"
  echo "deb [signed-by=$keys] $mirror $suite main" >"$work/sources"
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
  # Rename only when it is complete; of two concurrent runs the first one wins.
  mv -T "$work/root" "$target" 2>/dev/null || [ -x "$target/usr/bin/qbittorrent-nox" ]
  rm -rf "$work"
done
