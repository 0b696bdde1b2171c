"""Every reply to every command: what a refusal means, and that 4xx is never for good."""

from __future__ import annotations

import pytest

from longshore.domain.reasons import Kind, reason_named
from longshore.domain.transfer.ftp_replies import refusal

VERBS = ("", "USER", "PASS", "ACCT", "PWD", "CWD", "TYPE", "EPSV", "PASV", "SIZE", "MDTM", "REST", "RETR")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("begun", [False, True])
def test_every_reply(verb: str, begun: bool) -> None:
    for code in range(400, 600):
        reason = refusal(verb, code, begun=begun)
        assert reason is not None
        kind = reason_named(reason).kind
        if code < 500 and code != 430:  # RFC 2228 and common use: 430 is a wrong name or password
            assert kind is Kind.TRANSIENT, (verb, code, reason)
        if reason == "remote_not_found":
            assert verb in ("CWD", "RETR") and code in (550, 553)
        if begun:
            assert reason == "truncated"
    for code in range(100, 200):
        assert refusal(verb, code) is None


def test_what_is_no_refusal() -> None:
    assert refusal("PASS", 230) is None
    assert refusal("EPSV", 229) is None
    assert refusal("PASS", 332) == "auth_required"
    assert refusal("RETR", 226) == "protocol_error"
