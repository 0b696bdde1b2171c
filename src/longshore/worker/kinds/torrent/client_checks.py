"""What can be wrong between this machine and the torrent client, found before it hurts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from longshore.domain.kinds import Status
from longshore.domain.settings import QbittorrentSettings
from longshore.domain.torrents.model import JOB_TAG, map_path
from longshore.ledger.queries.torrents import sharing
from longshore.worker.kinds.torrent.client import Client

if TYPE_CHECKING:
    from longshore.ledger import Ledger

_REMOVES: Final = frozenset({1, 3})  # max_ratio_act: remove the torrent, with or without its files
_OVER: Final = frozenset({Status.FAILED, Status.CANCELED})


@dataclass(frozen=True, slots=True)
class ClientProblem:
    """One thing that was looked at."""

    level: Literal["ok", "warn", "fail"]
    message: str
    remedy: str | None = None


def check_client(settings: QbittorrentSettings, client: Client | None = None) -> list[ClientProblem]:
    """Look at the mapping and the client; raises `ClientAway` when it does not answer or does not let us in."""
    found = [
        ClientProblem(
            "fail",
            f"the client's {theirs!r} is mapped to {ours!r}, which is not a directory here",
            "correct qbittorrent.path_map",
        )
        for theirs, ours in settings.path_map.items()
        if not os.path.isdir(ours)
    ]
    client = client or Client(settings)
    program, api = client.version()
    found.append(ClientProblem("ok", f"qBittorrent {program} (API {api}) at {client.url}"))
    preferences = client.preferences()
    found.append(_save_path(settings, str(preferences.get("save_path") or "")))
    return found + _habits(preferences)


def left_behind(ledger: Ledger, client: Client) -> list[ClientProblem]:
    """Find torrents that we added and whose jobs have all failed or been canceled; they are no longer polled."""
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
    return [
        ClientProblem(
            "warn", message, f"`longshore torrent cancel {job_id}` removes it, starting the job again uses it"
        )
    ]


def _save_path(settings: QbittorrentSettings, default: str) -> ClientProblem:
    """Can finished files be seen from here?"""
    theirs = settings.save_path or default
    root, below = map_path(theirs, settings.path_map)
    ours = os.path.join(root, below) if below else root
    if os.path.isdir(ours):
        return ClientProblem("ok", f"the client saves to {theirs!r}, seen here as {ours!r}")
    return ClientProblem(
        "fail",
        f"the client saves to {theirs!r}, which would be {ours!r} here and is not a directory",
        "set qbittorrent.path_map to where this machine sees the client's directory",
    )


def _habits(preferences: dict[str, Any]) -> list[ClientProblem]:
    """Settings of the client that surprise people."""
    found = []
    limited = preferences.get("max_ratio_enabled") or preferences.get("max_seeding_time_enabled")
    if limited and preferences.get("max_ratio_act") in _REMOVES:
        found.append(
            ClientProblem(
                "warn",
                "the client removes torrents at their share limit; ours are added without one, adopted ones are not",
                "let it stop them instead",
            )
        )
    if preferences.get("dht") is False:
        found.append(ClientProblem("warn", "DHT is off: magnet links without a tracker find no peers", "enable DHT"))
    if preferences.get("auto_tmm_enabled"):
        found.append(
            ClientProblem("warn", "automatic management moves files when categories change", "prefer manual management")
        )
    return found
