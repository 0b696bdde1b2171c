"""What is held stays held: a look at the server that fails does not make stored bytes unreachable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing, status

BODY = b"the bytes that are held\n"


@pytest.mark.parametrize("mode", ["--refresh", "--force"])
@pytest.mark.parametrize("code", [404, 503])
def test_a_failed_refresh_leaves_what_is_held(box: Box, origin: Origin, tmp_path: Path, mode: str, code: int) -> None:
    url = origin.add("/x.bin", Thing(BODY), status(code))
    box("get", url).ok()
    assert box("get", mode, url).code == 3
    asked = origin.count("/x.bin")
    box("get", url, "-o", tmp_path / "x").ok()
    assert (tmp_path / "x").read_bytes() == BODY
    assert origin.count("/x.bin") == asked, "what is held moves zero bytes"
    assert "1 known" in box("add", "-", stdin=url.encode()).ok().stdout
    assert box("get", mode, url).code == 3, "a request to look again looks again"


def test_retry_of_the_failed_refresh_asks_again(box: Box, origin: Origin) -> None:
    url = origin.add("/x.bin", Thing(BODY), status(404), Thing(BODY + b"more"))
    box("get", url).ok()
    assert box("get", "--refresh", url).code == 3
    box("retry", "--status", "failed").ok()
    box("run").ok()
    assert origin.count("/x.bin") == 3
