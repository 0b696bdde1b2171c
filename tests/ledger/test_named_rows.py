"""Named rows have the columns of their fragment or statement, in its order, in both dialects."""

from __future__ import annotations

import re

import pytest

from longshore.ledger import named_rows
from longshore.ledger.statements import Dialect, statements

USES = {
    named_rows.JobRow: ("lane_heads", "named_heads", "jobs_named", "host_waiting"),
    named_rows.LeaseRow: ("expired_leases", "leases_of"),
    named_rows.FencedRow: ("fence",),
    named_rows.ControlRow: ("control_rows",),
    named_rows.KnownRow: ("plan_find",),
    named_rows.ArtifactRow: ("held", "job_results"),
    named_rows.EffectRow: ("effect_find", "job_effects"),
    named_rows.HostRow: ("host_facts", "host_row"),
    named_rows.UrlVersionRow: ("url_versions",),
    named_rows.TorrentRow: ("torrent_show", "torrents_list"),
    named_rows.PurgeRow: ("purge_page",),
    named_rows.DeletedRow: ("delete_rows",),
    named_rows.TokenRow: ("token_list", "token_by_id"),
}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize(("row", "name"), [(row, name) for row, names in USES.items() for name in names])
def test_a_named_row_has_the_columns_of_its_statement(row: type, name: str, dialect: Dialect) -> None:
    selected = re.match(r"\s*SELECT (.*?)\s+FROM ", statements(dialect)[name].text, re.DOTALL)
    assert selected is not None
    columns = tuple(column.strip().rpartition(".")[2] for column in selected[1].split(","))
    assert columns == row._fields  # type: ignore[attr-defined]
