"""URLs as they may be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.redaction import safe_text, safe_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/x.pdf", "https://a.example/x.pdf"),
        ("https://u:CANARY@a.example/x", "https://***@a.example/x"),
        ("https://a.example/x?page=2&X-Amz-Signature=CANARY", "https://a.example/x?page=2&X-Amz-Signature=***"),
        ("https://a.example/x?token=CANARY#CANARY", "https://a.example/x?token=***"),
        ("https://a.example/x;jsessionid=CANARY?y=1", "https://a.example/x;jsessionid=***?y=1"),
        ("https://a.example/x?CANARYCANARYCANARYCANARY", "https://a.example/x?***"),
        ("https://a.example/x?sv=2020&sig=CANARY&se=1", "https://a.example/x?sv=2020&sig=***&se=1"),
    ],
)
def test_shown(url: str, shown: str) -> None:
    assert safe_url(url) == shown


def test_in_a_text() -> None:
    assert safe_text("cannot get 'https://u:CANARY@h/x?key=CANARY' now") == "cannot get 'https://***@h/x?key=***' now"
    assert safe_text("plain") == "plain"


@given(st.text(max_size=50), st.text(max_size=50))
def test_userinfo_never_shows(before: str, after: str) -> None:
    for separator in "/?#":
        before = before.replace(separator, "")
    assert "CANARY" not in safe_url(f"https://{before}CANARY@host/{after.replace('CANARY', '')}")
