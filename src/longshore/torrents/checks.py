"""What can be wrong between this machine and the torrent client, found before it hurts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from longshore.domain.states import Status
from longshore.domain.torrents import JOB_TAG, QbittorrentSettings, map_path
from longshore.ledger.tracking import sharing
from longshore.torrents.client import Client

if TYPE_CHECKING:
    from longshore.ledger import Ledger

_REMOVES: Final = frozenset({1, 3})  # max_ratio_act: remove the torrent, with or without its files
_OVER: Final = frozenset({Status.FAILED, Status.CANCELED})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "warn", "fail"]
    message: str
    remedy: str | None = None


def examine(settings: QbittorrentSettings, client: Client | None = None) -> list[Finding]:
    """Look at the mapping and the client; raises `ClientAway` when it does not answer or does not let us in."""
    found = [
        Finding(
            "fail",
            f"the client's {theirs!r} is mapped to {ours!r}, which is no directory here",
            "correct qbittorrent.path_map",
        )
        for theirs, ours in settings.path_map
        if not os.path.isdir(ours)
    ]
    client = client or Client(settings)
    program, api = client.version()
    found.append(Finding("ok", f"qBittorrent {program} (API {api}) at {client.url}"))
    preferences = client.preferences()
    found.append(_save_path(settings, str(preferences.get("save_path") or "")))
    return found + _habits(preferences)


def left_behind(ledger: Ledger, client: Client) -> list[Finding]:
    """Find torrents of ours whose jobs have all failed or been canceled: nobody watches them any more."""
    found = []
    for seen in client.ours():
        named = sorted(tag.removeprefix(JOB_TAG) for tag in seen.tags if tag.startswith(JOB_TAG))
        known = ledger.read(sharing, seen.identity, named)
        if known.keys() >= set(named) and named and all(status in _OVER for status, _ in known.values()):
            found.append((seen.name, named[-1]))
    if not found:
        return []
    (name, job_id), more = found[0], f" and {len(found) - 1} more" if len(found) > 1 else ""
    message = f"the client still has {name!r}{more}, of jobs that failed or were canceled"
    return [Finding("warn", message, f"`longshore torrent cancel {job_id}` removes it, starting the job again uses it")]


def _save_path(settings: QbittorrentSettings, default: str) -> Finding:
    """Can finished files be seen from here?"""
    theirs = settings.save_path or default
    root, below = map_path(theirs, settings.path_map)
    ours = os.path.join(root, below) if below else root
    if os.path.isdir(ours):
        return Finding("ok", f"the client saves to {theirs!r}, seen here as {ours!r}")
    return Finding(
        "fail",
        f"the client saves to {theirs!r}, which would be {ours!r} here and is no directory",
        "set qbittorrent.path_map to where this machine sees the client's directory",
    )


def _habits(preferences: dict[str, Any]) -> list[Finding]:
    """Settings of the client that surprise people."""
    found = []
    limited = preferences.get("max_ratio_enabled") or preferences.get("max_seeding_time_enabled")
    if limited and preferences.get("max_ratio_act") in _REMOVES:
        found.append(
            Finding(
                "warn",
                "the client removes torrents at their share limit; ours are added without one, adopted ones are not",
                "let it stop them instead",
            )
        )
    if preferences.get("dht") is False:
        found.append(Finding("warn", "DHT is off: magnet links without a tracker find nobody", "switch DHT on"))
    if preferences.get("auto_tmm_enabled"):
        found.append(
            Finding("warn", "automatic management moves files when categories change", "prefer manual management")
        )
    return found
