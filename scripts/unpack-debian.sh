# shellcheck shell=bash
# Unpack packages of another Debian suite with their dependencies, for scripts that source this file. Nothing is installed
# into the system and root is not required; packages come from this machine's Debian mirror and are verified by apt with
# Debian's keys.
home=${LONGSHORE_COMPONENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-components}
keys=/usr/share/keyrings/debian-archive-keyring.gpg

unpack() { # unpack SUITE DIRECTORY PACKAGE...: into DIRECTORY/root
  local suite=$1 work=$2 mirror deb
  shift 2
  # shellcheck disable=SC2016  # apt's own variable
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | sort -u | head -1)
  [ -n "$mirror" ] || { echo "${0##*/}: apt on this machine names no Debian archive; add one to its sources" >&2; exit 1; }
  mkdir -p "$work"/{lists/partial,archives/partial,root}
  : >"$work/status"
  echo "deb [signed-by=$keys] $mirror $suite main" >"$work/sources"
  local apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::PreferencesParts=/dev/null -o "Dir::State::Lists=$work/lists" -o "Dir::State::Status=$work/status"
    -o "Dir::State::extended_states=$work/extended" -o "Dir::Cache=$work" -o "Dir::Cache::Archives=$work/archives"
    -o APT::Install-Recommends=0 -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::http::Timeout=30
    -o "APT::Sandbox::User=$(id -un)" -o Debug::NoLocking=1)
  "${apt[@]}" update
  "${apt[@]}" install -y --download-only "$@" >/dev/null
  for deb in "$work"/archives/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
}

unpacked() { # unpacked SUITE NAME PROGRAM PACKAGE...: $home/NAME-SUITE has PROGRAM, complete or not at all
  local suite=$1 target=$home/$2-$1 program=$3 work
  shift 3
  [ -x "$target/$program" ] && return
  mkdir -p "$home"
  work=$(mktemp -d "$home/.unpacking.XXXXXX")
  # shellcheck disable=SC2064  # the directory of this call
  trap "rm -rf '$work'" EXIT
  unpack "$suite" "$work" "$@"
  # Rename only when it is complete; of two concurrent runs the first one wins.
  mv -T "$work/root" "$target" 2>/dev/null || [ -x "$target/$program" ]
  rm -rf "$work"
}
