"""A list that is given by its URL is read like a file; pages of OpenAlex are followed; the second time the cache answers."""

from __future__ import annotations

import gzip
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.cli.conftest import Box
from tests.support.origin import Origin, Request, Thing, Wire, redirect, status

FRESH: dict[str, Any] = {"Date": None, "Cache-Control": "max-age=600"}


def jobs(box: Box) -> list[str]:
    return sorted(line["url"] for line in box("jobs", "--json").ok().lines)


def test_a_list_is_read_by_its_url_and_then_from_the_cache(box: Box, origin: Origin) -> None:
    files = [origin.add(f"/{n}", Thing(b"%d" % n)) for n in range(3)]
    url = origin.add("/list", Thing("\n".join(files).encode(), content_type="text/plain", extra=FRESH))
    assert box("add", url, "--dry-run").ok().stdout.startswith("3 readable")
    assert not box.depot.exists(), "a dry run makes no depot"
    assert box("add", url).ok().stdout.startswith("3 new")
    assert jobs(box) == files
    before = [box("add", url).ok().stdout for _ in range(3)]
    assert before == ["0 new, 3 known, 0 refused\n"] * 3
    assert origin.count("/list") == 3, "the depot was there from the third request on"
    assert box("get", "-i", url, "--json").ok().of("summary")[0]["completed"] == 3
    assert box("add", url, env={"LONGSHORE_OFFLINE": "true"}).ok().stdout.startswith("0 new")


def test_a_metalink_and_a_compressed_list(box: Box, origin: Origin) -> None:
    link = '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="a"><url>http://127.0.0.1/a</url></file></metalink>'
    assert box("add", origin.add("/a.meta4", Thing(link.encode()))).ok().stdout.startswith("1 new")
    packed = Thing(gzip.compress(b"http://127.0.0.1/b\n"), content_type="application/gzip")
    assert box("add", origin.add("/list.gz", packed)).ok().stdout.startswith("1 new")


def page(names: range, cursor: str | None) -> bytes:
    works = [{"id": f"https://openalex.org/W{n}", "locations": [{"pdf_url": f"http://127.0.0.1/{n}"}]} for n in names]
    return json.dumps({"meta": {"count": 4, "next_cursor": cursor}, "results": works}).encode()


def openalex(request: Request, wire: Wire) -> None:
    pages = {"*": page(range(2), "a/b+"), "a/b+": page(range(2, 4), "end"), "end": page(range(0), None)}
    cursor = parse_qs(urlsplit(request.target).query).get("cursor", ["*"])[0]
    Thing(pages[cursor], content_type="application/json", extra=FRESH)(request, wire)


def test_pages_of_openalex_are_followed_by_their_cursor(box: Box, origin: Origin) -> None:
    origin.add("/works", openalex)
    ran = box("add", origin.url("/works?filter=x"), "--format", "openalex").ok()
    assert ran.stdout.startswith("2 new")
    assert "2 of 4 works; `cursor=*` in the URL reads all pages" in ran.stderr
    assert box("add", origin.url("/works?cursor=%2A&filter=x"), "--format", "openalex").ok().stdout.startswith("2 new")
    assert len(jobs(box)) == 4


def test_what_is_no_list_is_refused_before_its_bytes(box: Box, origin: Origin) -> None:
    url = origin.add("/paper.pdf", Thing(b"%PDF-1.7\n" * 1_000, content_type="application/pdf"))
    ran = box("add", url)
    assert ran.code == 2
    assert "is application/pdf, not a list" in ran.stderr
    assert "`longshore get` takes URLs" in ran.stderr


def test_a_list_that_cannot_be_had_is_told_without_its_secrets(box: Box, origin: Origin) -> None:
    url = origin.add("/list", status(403)) + "?token=canary"
    ran = box("add", url)
    assert ran.code == 3
    assert "cannot be read: http_403" in ran.stderr
    assert "canary" not in ran.stderr
    private = box("add", url, env={"LONGSHORE_NETWORK__ALLOW": "[]"})
    assert private.code == 3
    assert "forbidden_address" in private.stderr
    moved = origin.add("/moved", redirect("ftp://127.0.0.1/x"))
    assert box("add", moved).code == 3
    assert box("add", url, env={"LONGSHORE_OFFLINE": "true"}).code == 3
    assert box("add", "nowhere://x/list").code == 3


def test_bad_lines_are_named_with_a_url_that_has_no_secret(box: Box, origin: Origin) -> None:
    url = origin.add("/list", Thing(b"http://127.0.0.1/a\nnonsense\n", content_type="text/plain")) + "?token=canary"
    ran = box("add", url)
    assert ran.code == 3
    assert "/list?token=" in ran.stderr
    assert "canary" not in ran.stderr
