"""Sizes with and without units."""

from __future__ import annotations

import pytest

from longshore.domain.places import is_address, without_login
from longshore.domain.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("1_000", 1000),
        ("64k", 64 << 10),
        ("64K", 64 << 10),
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("2GiB", 2 << 30),
        ("2gib", 2 << 30),
        ("1.5G", 3 << 29),
        ("1.5GB", 1_500_000_000),
        ("7B", 7),
        ("1PiB", 1 << 50),
        (" 3T ", 3 << 40),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1.5", "0.3B", "1 parsec", "1e9", "1iB", "nan", "１k", "1.0001k"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_size(text)


@pytest.mark.parametrize("text", ["s3://b/x", "s3:/b", "s3:b", "gs://b", "mysql://h/db", "HTTP://x", "file:/x"])
def test_addresses_are_told_from_paths(text: str) -> None:
    assert is_address(text)
    assert not is_address(f"./{text}")
    assert not is_address(f"/srv/{text}")


@pytest.mark.parametrize("text", ["depot", "a:b", "C", "~/x", "../x", "", "-", "2026-11-18T12:00/x"])
def test_paths_are_not_addresses(text: str) -> None:
    assert not is_address(text)


def test_a_login_is_not_shown() -> None:
    assert without_login("mysql://me:secret@h/db") == "mysql://********@h/db"
