"""`transfer.max_rate`: rates with units and timetables."""

from __future__ import annotations

import pytest

from longshore.domain.policy.max_rate import parse_max_rate, rate_at
from longshore.domain.settings import TransferSettings

NOON, NIGHT, EARLY = 12 * 60, 23 * 60, 5 * 60


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("", 0),
        ("0", 0),
        ("4096", 4096),
        ("500k", 500 << 10),
        ("2M", 2 << 20),
        ("1.5M", 3 << 19),
        ("1G", 1 << 30),
        ("2MiB/s", 2 << 20),
        ("2mb", 2 << 20),
    ],
)
def test_one_rate_holds_all_day(text: str, rate: int) -> None:
    assert {rate_at(parse_max_rate(text), minute) for minute in (0, NOON, 1439)} == {rate}


def test_a_timetable_takes_the_first_entry_that_fits() -> None:
    entries = parse_max_rate("500k 08:00-18:00, 1M 22:00-06:00, 0 otherwise")
    assert rate_at(entries, NOON) == 500 << 10
    assert rate_at(entries, 8 * 60) == 500 << 10
    assert rate_at(entries, 18 * 60) == 0
    assert rate_at(entries, NIGHT) == rate_at(entries, EARLY) == 1 << 20
    assert rate_at(entries, 6 * 60) == 0
    assert rate_at(parse_max_rate("1M 00:00-24:00"), 1439) == 1 << 20


@pytest.mark.parametrize(
    "text",
    ["fast", "-1", "2X", "1M 8-18", "1M 25:00-26:00", "1M 08:60-09:00", "1M 08:00-08:00", ",", "10", "1M sometimes"],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="max_rate"):
        TransferSettings(max_rate=text)
