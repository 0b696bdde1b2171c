#!/usr/bin/env bash
# Unpack newer versions of qBittorrent: qbittorrent.sh SUITE... unpacks the one of each Debian suite.
set -euo pipefail
. "$(dirname "$0")/unpack-debian.sh"

for suite in "$@"; do
  unpacked "$suite" qbittorrent usr/bin/qbittorrent-nox qbittorrent-nox
done
