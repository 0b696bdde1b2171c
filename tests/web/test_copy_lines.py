"""What a person copies from the dashboard asks for the same as the job did, or is not offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.model import Scope
from longshore.ledger import Ledger
from longshore.web.serializers import as_cli, as_curl, job_view

LONG = "https://a.example/" + "x" * 2_000


@pytest.mark.parametrize(
    ("url", "copied"),
    [
        (LONG, LONG),
        (LONG + "?page=2#part", LONG + "?page=2"),
        (LONG + "?token=CANARY", None),
        ("https://user:CANARY@a.example/x", None),
    ],
)
def test_a_copied_command_asks_for_the_same_or_is_not_offered(tmp_path: Path, url: str, copied: str | None) -> None:
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        (planned,) = ledger.plan(Scope(), [download_request(url)])
        job = ledger.job(Scope(), planned.job_id)
    curl, cli = as_curl(job), as_cli(job)
    if copied is None:
        assert curl is None
        assert cli == f"longshore show {job.job_id}"
    else:
        assert str(curl).rpartition(" ")[2].strip("'") == copied
        assert cli.rpartition(" ")[2].strip("'") == copied
    shown = job_view(job)
    assert "CANARY" not in str(shown)
    assert len(shown["url"]) >= len(copied or "")
    assert shown["work_id"] == shown["canonical_url"] == shown["url"]
