"""`get`: have these things; what is held moves zero bytes, what fails says why and what to do."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing, status
from tests.support.program import command, environment

BODY = b"the bytes of this test\n"
SHA = hashlib.sha256(BODY).hexdigest()


def test_get_fetches_verifies_and_says_where(box: Box, origin: Origin) -> None:
    url = origin.add("/a.bin", Thing(BODY))

    ran = box("get", url, "--json").ok()

    (done,) = ran.of("completed")
    (summary,) = ran.of("summary")
    assert (done["url"], done["sha256"], done["size_bytes"]) == (url, SHA, len(BODY))
    assert Path(done["path"]).read_bytes() == BODY
    assert done["attempts"] == 1
    assert (summary["completed"], summary["held"], summary["bytes"], summary["failed"]) == (1, 0, len(BODY), 0)
    assert summary["jobs"]["completed"] == 1


def test_the_same_command_again_moves_zero_bytes_and_says_why(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(5)]
    box("get", *urls).ok()
    before = [origin.count(f"/{n}") for n in range(5)]

    ran = box("get", *urls, "--json").ok()
    text = box("get", *urls).ok()

    assert [origin.count(f"/{n}") for n in range(5)] == before
    assert [line["url"] for line in ran.of("held")] == urls
    assert all(line["why"] == "already held" for line in ran.of("held"))
    (summary,) = ran.of("summary")
    assert (summary["held"], summary["bytes"]) == (5, 0)
    assert text.stdout.count("already held") == 5


def test_a_private_address_is_refused_unless_allowed(box: Box, origin: Origin) -> None:
    url = origin.add("/x", Thing(BODY))
    closed = {"LONGSHORE_NETWORK__ALLOW": "[]"}

    refused = box("get", url, "--json", env=closed)

    (failed,) = refused.of("failed")
    assert (refused.code, failed["reason"], failed["url"]) == (3, "forbidden_address", url)
    assert origin.count("/x") == 0
    text = box("get", url, env=closed)
    assert text.code == 3
    assert "forbidden_address" in text.stderr
    assert "--allow-net" in text.stderr
    assert box("get", url, "--allow-net", "127.0.0.0/8", env=closed).code == 0


@pytest.mark.parametrize("url", ["gopher://127.0.0.1/x", "file:///etc/passwd", "data:,hello", "javascript:alert(1)"])
def test_a_refused_scheme_is_a_failed_item(box: Box, url: str) -> None:
    ran = box("get", url, "--json")

    (failed,) = ran.of("failed")
    assert (ran.code, failed["reason"]) == (3, "forbidden_scheme")


@pytest.mark.parametrize("word", ["nonsense", "", "http://", "https://exa mple.org/", "//host/x", "http://a\x01b/"])
def test_an_argument_that_is_no_url_is_usage_and_nothing_is_done(box: Box, origin: Origin, word: str) -> None:
    good = origin.add("/good", Thing(BODY))

    ran = box("get", good, word)

    assert (ran.code, ran.stdout) == (2, "")
    assert origin.count("/good") == 0
    assert not box.depot.exists()


def test_no_argument_is_usage(box: Box) -> None:
    ran = box("get")
    assert ran.code == 2
    assert "URL" in ran.stderr


def test_some_failed_and_the_rest_is_held(box: Box, origin: Origin) -> None:
    good, gone = origin.add("/good", Thing(BODY)), origin.add("/gone", status(404))

    ran = box("get", good, gone)

    assert ran.code == 3
    assert "http_404" in ran.stderr
    assert gone in ran.stderr
    assert "→" in ran.stderr
    assert good in ran.stdout
    assert box.counts() == {"completed": 1, "failed": 1}


def test_what_failed_is_tried_again_by_get(box: Box, origin: Origin) -> None:
    url = origin.add("/x", status(404), Thing(BODY))
    assert box("get", url).code == 3

    assert box("get", url).code == 0


def test_an_expected_digest_is_enforced(box: Box, origin: Origin) -> None:
    url = origin.add("/x", Thing(BODY))

    wrong = box("get", url, "--sha256", "0" * 64, "--json")

    assert (wrong.code, wrong.of("failed")[0]["reason"]) == (3, "digest_mismatch")
    assert box("get", url + "?2", "--sha256", "short").code == 2


def test_dry_run_says_what_would_be_done_and_does_nothing(box: Box, origin: Origin) -> None:
    held, gone, new = origin.add("/a", Thing(BODY)), origin.add("/b", status(404)), origin.add("/c", Thing(BODY))

    before = box("get", held, "--dry-run", "--json").ok()
    assert not box.depot.exists()
    box("get", held, gone)
    ran = box("get", held, gone, new, "--dry-run", "--json").ok()

    assert [line["plan"] for line in before.of("preview")] == ["fetch"]
    assert [line["plan"] for line in ran.of("preview")] == ["held", "try_again", "fetch"]
    assert [line["plan"] for line in box("get", held, "--refresh", "--dry-run", "--json").of("preview")] == ["refresh"]
    assert origin.count("/c") == 0
    assert box.counts() == {"completed": 1, "failed": 1}


def test_refresh_asks_the_server_again(box: Box, origin: Origin) -> None:
    url = origin.add("/x", Thing(BODY))
    box("get", url).ok()
    before = origin.count("/x")

    box("get", url, "--refresh").ok()

    assert origin.count("/x") > before


def test_waiting_has_an_end(box: Box, origin: Origin) -> None:
    url = origin.add("/x", status(503, b"", **{"Retry-After": "3600"}))

    ran = box("get", url, "--max-wait", "0.2", "--json")

    assert ran.code == 4
    assert ran.of("summary")[0]["pending"] == 1
    assert box.counts() == {"pending": 1}


def test_a_list_can_be_got(box: Box, origin: Origin) -> None:
    first, second = origin.add("/1", Thing(b"1")), origin.add("/2", Thing(b"2"))
    path = box.write("list.txt", f"{first}\n")

    box("get", second, "-i", path, "-i", "-", stdin=b"").ok()
    broken = box("get", "-i", box.write("broken.txt", f"{first}\nnonsense\n"))

    assert box.counts() == {"completed": 2}
    assert broken.code == 3
    assert "broken.txt:2" in broken.stderr


def test_headers_and_mirrors_are_sent_and_tried(box: Box, origin: Origin) -> None:
    bad, good = origin.add("/bad", status(404)), origin.add("/good", Thing(BODY))

    box("get", bad, "--mirror", good, "--header", "X-Asked-By: a test").ok()

    assert origin.seen("/good")[-1].headers["x-asked-by"] == "a test"
    assert box("get", bad, good, "--mirror", good).code == 2
    assert box("get", bad, "--header", "broken").code == 2


def test_credentials_in_a_url_are_not_printed(box: Box, origin: Origin) -> None:
    url = origin.add("/x", Thing(BODY)).replace("http://", "http://user:hunter2@")

    ran = box("get", url, "--json")
    text = box("get", url)
    failed = box("get", origin.add("/no", status(404)).replace("http://", "http://user:hunter2@"))

    for one in (ran, text, failed):
        assert "hunter2" not in one.stdout + one.stderr


def test_held_bytes_are_no_answer_to_another_digest(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"what the server has"))
    sha256 = box("get", url, "--json").ok().of("completed")[0]["sha256"]

    assert box("get", url, "--sha256", sha256, "--json").ok().of("held")
    refused = box("get", url, "--sha256", "0" * 64, "--json")

    assert refused.code == 3
    assert refused.of("failed")[0]["reason"] == "digest_mismatch"
    assert not refused.of("held")


def test_bytes_can_go_to_stdout_and_nothing_else_does(box: Box, origin: Origin) -> None:
    body = bytes(range(256)) * 3000
    url = origin.add("/x", Thing(body))

    for loudness in ("-q", "-v"):
        done = subprocess.run(
            command("get", url, "-o", "-", loudness), env=environment(box.env), capture_output=True, check=True
        )
        assert done.stdout == body
    assert box("get", url, "-o", "-", "--json").code == 2
    assert box("get", origin.add("/gone", status(404)), "-o", "-").stdout == ""


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["get", "example.org/paper.pdf"], "did you mean https://example.org/paper.pdf?"),
        (["get", "."], "`longshore put` takes files"),
        (["stauts"], "Did you mean 'stats' or 'status'?"),
        (["get", "--ouput", "x"], "--output"),
    ],
)
def test_what_was_meant_is_guessed(box: Box, words: list[str], meant: str) -> None:
    ran = box(*words)

    assert (ran.code, ran.stdout) == (2, "")
    assert meant in ran.stderr
