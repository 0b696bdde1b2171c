"""From the user's settings to the record that the torrent side takes; `depot.wiring` does the same for all the rest."""

from __future__ import annotations

from longshore.config.sections import Settings
from longshore.domain.torrents import QbittorrentSettings


def qbittorrent_settings(settings: Settings) -> QbittorrentSettings:
    """Make what the torrent side needs."""
    given = settings.qbittorrent
    return QbittorrentSettings(
        url=given.url,
        username=given.username or "",
        password=given.password.reveal() if given.password else "",
        api_key=given.api_key.reveal() if given.api_key else "",
        category=given.category,
        save_path=given.save_path,
        poll_s=given.poll_s,
        batch=given.batch,
        not_found_grace_s=given.not_found_grace_s,
        error_grace_s=given.error_grace_s,
        stall_s=given.stall_s,
        metadata_s=given.metadata_s,
        enqueue_attempts=given.enqueue_attempts,
        path_map=tuple(given.path_map.items()),
        hardlink=given.hardlink,
        max_torrent_bytes=given.max_torrent_bytes,
        timeout_s=given.timeout_s,
    )
