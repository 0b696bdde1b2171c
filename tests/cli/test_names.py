"""Names of results: from the server, the URL or a template; every file is placed once, when it is done."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Box
from tests.support.origin import Gate, Origin, Thing
from tests.support.program import eventually, started

PDF = b"%PDF-1.4 one paper"


def named(name: str, body: bytes) -> Thing:
    return Thing(body, extra={"Content-Disposition": f"attachment; filename*=UTF-8''{name}; filename=plain.pdf"})


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_server_names_its_file(box: Box, origin: Origin) -> None:
    url = origin.add("/download/77", named("p%C3%A4per.pdf", PDF))

    box("get", url, "-d", box.home / "out").ok()
    box("export", "tree", "-o", box.home / "tree").ok()
    (line,) = box("export").ok().stdout.splitlines()

    assert files(box.home / "out") == files(box.home / "tree") == {"päper.pdf": PDF}
    assert '"name":"päper.pdf"' in line


def test_a_name_of_the_list_comes_before_the_server_s(box: Box, origin: Origin) -> None:
    url = origin.add("/download/77", named("server.pdf", PDF))

    box("get", "-i", box.write("list", f"{url}\n  out=mine.pdf\n"), "-d", box.home / "out").ok()

    assert files(box.home / "out") == {"mine.pdf": PDF}


def test_a_large_body_that_is_continued_keeps_its_name(box: Box, origin: Origin) -> None:
    body = PDF + b"x" * 2_000_000
    gate = Gate(named("large.pdf", body), 1_000_000)
    url = origin.add("/download/1", gate)
    words = ("get", url, "-d", box.home / "out")
    with started(box.home / "run", *words, env=box.env) as running:
        eventually(lambda: list(box.depot.glob("store/**/*.part*")) or origin.count("/download/1"), "it began")
        running.kill()
    gate.open()

    box(*words).ok()

    assert files(box.home / "out") == {"large.pdf": body}


def test_a_session_is_not_part_of_a_name(box: Box, origin: Origin) -> None:
    url = origin.add("/file.pdf;jsessionid=8A7.n1", Thing(PDF))

    box("get", url, "-d", box.home / "out").ok()
    box("export", "tree", "-o", box.home / "tree").ok()

    assert files(box.home / "out") == files(box.home / "tree") == {"file.pdf": PDF}


def test_the_extension_in_a_tree_is_that_of_the_bytes(box: Box, origin: Origin) -> None:
    origin.add("/pdf/2101.12345", Thing(PDF))
    origin.add("/download/77", Thing(PDF + b"2"))
    listed = f'{{"url":"{origin.url("/pdf/2101.12345")}","work_id":"doi:10.48550/arxiv.2101.12345"}}\n'
    listed += f'{{"url":"{origin.url("/download/77")}","work_id":"openalex:W2"}}\n'

    box("get", "-i", box.write("list", listed)).ok()
    box("export", "tree", "-o", box.home / "tree", "--template", "{work_id}.{ext}").ok()
    box("export", "tree", "-o", box.home / "stems", "--template", "{stem}.{ext}").ok()

    assert set(files(box.home / "tree")) == {"doi_10.48550_arxiv.2101.12345.pdf", "openalex_W2.pdf"}
    assert set(files(box.home / "stems")) == {"2101.12345.pdf", "77.pdf"}


@pytest.mark.parametrize(
    "template", ["{name", "{sha256:.8}", "{title}", "name}", "{}", "{{name}}", "{na me}", "../{name}"]
)
def test_a_wrong_template_is_told_at_once(box: Box, template: str) -> None:
    ran = box("export", "tree", "-o", box.home / "tree", "--template", template)

    assert ran.code == 2, ran.stderr  # also before a depot is looked for
    assert "template" in ran.stderr
    assert not (box.home / "tree").exists()


def test_a_second_list_into_one_folder_gets_a_suffix(box: Box, origin: Origin) -> None:
    first, second = origin.add("/a/same.txt", Thing(b"one")), origin.add("/b/same.txt", Thing(b"two"))
    out = box.home / "out"

    box("get", first, "-d", out).ok()
    for _ in range(2):
        (placed,) = box("get", second, "-d", out, "--json").ok().of("placed")

    assert set(files(out).values()) == {b"one", b"two"}
    assert files(out)["same.txt"] == b"one"
    assert Path(placed["path"]).read_bytes() == b"two"
    box("get", second, "-d", out, "--overwrite").ok()
    assert files(out)["same.txt"] == b"two"


def test_a_name_that_the_user_chose_is_not_changed(box: Box, origin: Origin) -> None:
    first, second = origin.add("/a", Thing(b"one")), origin.add("/b", Thing(b"two"))
    out = box.home / "out"
    box("get", "-i", box.write("1", f"{first}\n  out=x.txt\n"), "-d", out).ok()

    refused = box("get", "-i", box.write("2", f"{second}\n  out=x.txt\n"), "-d", out)

    assert refused.code == 1
    assert "exists already" in refused.stderr
    assert files(out) == {"x.txt": b"one"}


@pytest.mark.parametrize("workers", [1, 2])
def test_each_file_is_placed_when_it_is_done_and_once_after_a_kill(
    box: Box, origin: Origin, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 12 if workers == 1 else 520  # below 512 one process is enough
    gate = Gate(Thing(b"x" * 2_000), 1_000)
    bodies = {f"{n}.txt": b"body %d" % n for n in range(many)}
    urls = [origin.add(f"/{name}", Thing(body)) for name, body in bodies.items()]
    last = origin.add("/last.txt", gate)
    words = (
        "get",
        "-i",
        box.write("list", "\n".join([last, *urls])),
        "-d",
        box.home / "out",
        "--workers",
        workers,
        "-q",
    )
    with started(box.home / "run", *words, env=box.env) as running:
        eventually(lambda: (box.home / "out").exists() and len(files(box.home / "out")) == many, "placed meanwhile")
        assert running.process.poll() is None
        running.kill()
    gate.open()

    box.process(*words).ok()

    assert files(box.home / "out") == bodies | {"last.txt": b"x" * 2_000}


def test_files_that_share_a_name_are_placed_once_after_a_kill(box: Box, origin: Origin) -> None:
    gate = Gate(Thing(b"one" * 1_000), 1_000)
    one, two = origin.add("/a/same.txt", gate), origin.add("/b/same.txt", Thing(b"two"))
    other = origin.add("/c/download", Thing(b"two", extra={"Content-Disposition": "attachment; filename=same.txt"}))
    words = ("get", one, two, other, "-d", box.home / "out", "--json")
    with started(box.home / "run", *words, env=box.env) as running:
        eventually(lambda: running.stdout.count('"completed"') == 2, "two are stored")
        running.kill()
    gate.open()

    for _ in range(2):
        box(*words).ok()

    assert sorted(files(box.home / "out").values()) == [b"one" * 1_000, b"two"]


def test_names_of_servers_that_collide_are_placed_once_after_a_kill(box: Box, origin: Origin) -> None:
    gate = Gate(named("x.pdf", b"one" * 1_000), 1_000)
    words = ("get", origin.add("/1", gate), origin.add("/2", named("x.pdf", b"two")), "-d", box.home / "out")
    with started(box.home / "run", *words, env=box.env) as running:
        eventually((box.home / "out" / "x.pdf").exists, "the second is placed")
        running.kill()
    gate.open()

    for _ in range(2):
        box(*words).ok()

    assert files(box.home / "out")["x.pdf"] == b"two"
    assert sorted(files(box.home / "out").values()) == [b"one" * 1_000, b"two"]


def test_what_was_stored_before_is_placed_before_the_rest_is_fetched(box: Box, origin: Origin) -> None:
    gate = Gate(Thing(b"x" * 2_000), 1_000)
    held, slow = origin.add("/held.txt", Thing(b"held")), origin.add("/slow.txt", gate)
    box("get", held).ok()
    with started(box.home / "run", "get", slow, held, "-d", box.home / "out", env=box.env) as running:
        eventually((box.home / "out" / "held.txt").exists, "the stored one is placed")
        running.signal(signal.SIGINT)
        assert running.wait().code == 130

    assert files(box.home / "out") == {"held.txt": b"held"}


def test_a_blob_that_is_damaged_is_fetched_again_although_it_is_placed_early(box: Box, origin: Origin) -> None:
    url, new = origin.add("/a.txt", Thing(b"intact")), origin.add("/b.txt", Thing(b"new"))
    box("get", url).ok()
    (blob,) = [path for path in (box.depot / "store").rglob("*") if path.is_file() and len(path.name) >= 64]
    blob.chmod(0o600)
    blob.write_bytes(b"dAmagE")

    ran = box("get", url, new, url, "-d", box.home / "out", "--json").ok()

    assert files(box.home / "out") == {"a.txt": b"intact", "b.txt": b"new"}
    assert len(ran.of("placed")) == 3
    assert origin.count("/a.txt") == 2
