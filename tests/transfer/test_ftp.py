"""FTP servers that lie about a file's length: complete means as long as SIZE says, or marked as unverified."""

from __future__ import annotations

import pytest

from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory, Transfer
from tests.support.liar_ftp import LiarFtp
from tests.support.origin import stamped
from tests.transfer.wire import fails, fetch, reason, within

DATA = stamped(1, 9000)
WHOLE = f"213 {len(DATA)}"


@pytest.mark.parametrize(
    "begin", ["150 here it comes", "150 BINARY mode data connection (9000 bytes)", "150 (10 bytes)"]
)
def test_a_length_that_is_right(begin: str) -> None:
    with LiarFtp(DATA, size=WHOLE, begin=begin, mdtm="213 20250106100000") as server:
        got, body = fetch(server.url())
        assert body == DATA and got.head.length == len(DATA) and got.head.delimited
        assert got.head.validators.last_modified == "Mon, 06 Jan 2025 10:00:00 GMT"
        assert server.count("RETR") == 1


@pytest.mark.parametrize("size", ["213 100", "213 8999", "213 0", "213 1"])
def test_a_file_longer_than_its_size_fails(size: str) -> None:
    """libcurl alone would stop after that many bytes and call it complete."""
    with LiarFtp(DATA, size=size) as server:
        assert reason(server.url()) == "length_mismatch"


@pytest.mark.parametrize("size", ["213 9001", "213 123456"])
def test_a_file_shorter_than_its_size_is_truncated(size: str) -> None:
    with LiarFtp(DATA, size=size) as server:
        assert reason(server.url()) == "truncated"


def test_an_empty_file() -> None:
    with LiarFtp(b"", size="213 0") as server:
        got, body = fetch(server.url())
        assert body == b"" and got.head.length == 0 and got.head.delimited
    with LiarFtp(b"", size="213 7") as server:
        assert reason(server.url()) == "truncated"


@pytest.mark.parametrize(
    "size", ["502 no", "213 -5", "213 5 or so", "213 ", "213 0x10", "550 not for you", "213 +9000"]
)
def test_without_a_size_the_length_is_unverified(size: str) -> None:
    with LiarFtp(DATA, size=size) as server:
        got, body = fetch(server.url())
        assert body == DATA and got.head.length is None and not got.head.delimited


def test_the_length_in_the_reply_to_retr_is_compared_where_there_is_no_size() -> None:
    with LiarFtp(DATA, begin="150 f (100 bytes)") as server:
        assert reason(server.url()) == "length_mismatch"
    with LiarFtp(DATA, begin="150 f (10000 bytes).") as server:
        assert reason(server.url()) == "truncated"
    with LiarFtp(DATA, begin="150 f (9000 bytes)") as server:
        got, body = fetch(server.url())
        assert body == DATA and got.head.delimited


@pytest.mark.parametrize("end", ["426 cut", "451 disk", None])
def test_a_transfer_that_the_server_calls_failed(end: str | None) -> None:
    for size in ("502 no", WHOLE):
        with LiarFtp(DATA, size=size, end=end) as server:
            assert reason(server.url()) == "truncated"


def test_a_resume_needs_a_size_and_is_compared_with_it() -> None:
    with LiarFtp(DATA, size=WHOLE) as server:
        got, body = fetch(FetchRequest(server.url(), start=4000))
        span = got.head.content_range
        assert body == DATA[4000:] and got.head.status == 206
        assert span is not None and (span.first, span.last, span.total) == (4000, 8999, 9000)
        assert server.commands[-1] == "QUIT" or "REST 4000" in server.commands
    for size, word in (("213 5000", "length_mismatch"), ("213 9500", "truncated"), ("502 no", "bad_range")):
        with LiarFtp(DATA, size=size) as server:
            assert reason(FetchRequest(server.url(), start=4000)) == word
    for start in (9000, 9001):
        with LiarFtp(DATA, size=WHOLE) as server:
            assert reason(FetchRequest(server.url(), start=start)) == "bad_range"
    with LiarFtp(DATA, size=WHOLE, rest="502 no REST here") as server:
        assert reason(FetchRequest(server.url(), start=4000)) == "bad_range"


def test_a_probe_reads_size_as_strictly() -> None:
    for size, length in ((WHOLE, 9000), ("213 -5", None), ("502 no", None)):
        with LiarFtp(DATA, size=size) as server:
            url = server.url()
            assert within(lambda t, url=url: t.probe(FetchRequest(url))).head.length == length  # type: ignore[misc]


def test_a_limit_is_kept() -> None:
    with LiarFtp(DATA, size=WHOLE) as server:
        assert reason(FetchRequest(server.url(), max_bytes=1000)) == "too_large"
    with LiarFtp(DATA) as server:
        assert reason(FetchRequest(server.url(), max_bytes=1000)) == "too_large"


@pytest.mark.parametrize(
    ("path", "verbs"),
    [
        ("d/a%20b", ["CWD d", "SIZE a b", "RETR a b"]),
        ("f?x=1", ["SIZE f?x=1", "RETR f?x=1"]),
        ("d%2Ff", ["CWD d", "SIZE f", "RETR f"]),
        ("caf%E9", ["SIZE caf\xe9", "RETR caf\xe9"]),
    ],
)
def test_the_size_is_that_of_the_file_that_is_fetched(path: str, verbs: list[str]) -> None:
    with LiarFtp(DATA, size=WHOLE) as server:
        assert fetch(server.url(path))[1] == DATA
        assert [c for c in server.commands if c.split(" ")[0] in ("CWD", "SIZE", "RETR")] == verbs


@pytest.mark.parametrize("path", ["d%2F", "%2F", "d%2f?"])
def test_a_directory_is_not_a_file(path: str) -> None:
    with LiarFtp(DATA, size=WHOLE) as server:
        assert reason(server.url(path)) == "bad_url" or path.endswith("?")
        assert server.count("LIST") == server.count("NLST") == 0


@pytest.mark.parametrize("mdtm", ["213 191050106100000", "213 5", "213-odd\r\n 213 9\r\n213 5"])
def test_only_the_reply_to_size_is_a_size(mdtm: str) -> None:
    with LiarFtp(DATA, mdtm=mdtm) as server:
        got, body = fetch(server.url())
        assert body == DATA and not got.head.delimited
    with LiarFtp(DATA, mdtm=mdtm, size=WHOLE) as server:
        got, body = fetch(server.url())
        assert body == DATA and got.head.length == len(DATA)
    with LiarFtp(b"", mdtm=mdtm, size="213 0") as server:
        assert fetch(server.url())[0].head.length == 0


@pytest.mark.parametrize(
    ("verb", "reply", "word"),
    [
        ("RETR", "421 closing", "connect"),
        ("RETR", "425 no data connection", "connect"),
        ("RETR", "426 closed", "connect"),
        ("RETR", "450 busy", "protocol_error"),
        ("RETR", "451 local error", "protocol_error"),
        ("RETR", "452 full", "protocol_error"),
        ("RETR", "500 what", "protocol_error"),
        ("RETR", "503 bad sequence", "protocol_error"),
        ("RETR", "530 log in first", "auth_required"),
        ("RETR", "550 no such file", "remote_not_found"),
        ("RETR", "226 done", "protocol_error"),
        ("CWD", "550 no such directory", "remote_not_found"),
        ("CWD", "450 busy", "protocol_error"),
        ("CWD", "421 closing", "connect"),
        ("CWD", "530 log in first", "auth_required"),
        ("USER", "421 too many users", "connect"),
        ("USER", "530 no", "auth_required"),
        ("PASS", "530 no", "auth_required"),
        ("PASS", "430 no", "auth_required"),
        ("PASS", "421 closing", "connect"),
        ("TYPE", "504 no", "protocol_error"),
        ("TYPE", "421 closing", "connect"),
    ],
)
def test_a_refusal_is_told_by_the_servers_own_reply(verb: str, reply: str, word: str) -> None:
    with LiarFtp(DATA, size=WHOLE, refuse={verb: reply}) as server:
        error = fails(server.url("d/f"))
        assert error.reason == word
        assert str(error).endswith(f"the server answered to {verb}: {reply}")
        assert error.facts["status"] == int(reply[:3])
        assert server.count("RETR") <= 1


@pytest.mark.parametrize(
    ("greeting", "word"), [("421 too many", "connect"), ("530 not you", "auth_required"), ("554 no", "protocol_error")]
)
def test_a_greeting_that_refuses(greeting: str, word: str) -> None:
    with LiarFtp(DATA, greeting=greeting) as server:
        error = fails(server.url())
        assert error.reason == word
        assert greeting in str(error)


def test_bytes_that_are_not_sent_as_they_are_never_complete() -> None:
    """After a refused TYPE libcurl would go on with the same connection, in the server's own mode."""

    async def twice(transfer: Transfer) -> list[str]:
        reasons = []
        for _ in range(3):
            with pytest.raises(Reasoned) as caught:
                await transfer.fetch(FetchRequest(server.url()), Memory())
            reasons.append(caught.value.reason)
        return reasons

    with LiarFtp(DATA, refuse={"TYPE": "504 no"}) as server:
        assert within(twice) == ["protocol_error"] * 3
        assert server.count("RETR") == 0
        assert server.count("USER") == 3


def test_each_file_has_a_connection_of_its_own() -> None:
    async def both(transfer: Transfer) -> None:
        for _ in range(2):
            await transfer.fetch(FetchRequest(server.url()), Memory())

    with LiarFtp(DATA, size=WHOLE) as server:
        within(both)
        assert [c for c in server.commands if c.split(" ")[0] in ("USER", "TYPE")] == ["USER anonymous", "TYPE I"] * 2
