"""`-o` and `-d`: names outside the store, never outside the target, never over something without being told."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from longshore.cli.get.file_names import file_name
from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing
from tests.support.program import command, environment

BODY = b"placed bytes\n"


def named(name: str, body: bytes = BODY) -> Thing:
    return Thing(body, extra={"Content-Disposition": f'attachment; filename="{name}"'})


def test_output_gives_the_bytes_a_name_of_their_own(box: Box, origin: Origin) -> None:
    target = box.home / "sub" / "x.bin"

    ran = box("get", origin.add("/a", Thing(BODY)), "-o", target, "--json").ok()

    assert target.read_bytes() == BODY
    assert ran.of("placed")[0]["path"] == str(target)
    assert target.stat().st_nlink == 1
    target.write_bytes(b"an editor was here")
    assert box("verify").code == 0


def test_a_hard_link_only_on_request(box: Box, origin: Origin) -> None:
    target = box.home / "x.bin"

    box("get", origin.add("/a", Thing(BODY)), "-o", target, "--hardlink").ok()

    assert target.stat().st_nlink > 1


def test_nothing_is_overwritten_without_being_told(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    target = box.write("x.bin", "mine")

    refused = box("get", url, "-o", target)

    assert refused.code == 1
    assert "x.bin" in refused.stderr
    assert "exists" in refused.stderr
    assert target.read_bytes() == b"mine"
    box("get", url, "-o", target, "--overwrite").ok()
    assert target.read_bytes() == BODY


def test_a_symlink_is_not_followed(box: Box, origin: Origin) -> None:
    victim = box.write("victim", "mine")
    target = box.home / "link"
    target.symlink_to(victim)

    assert box("get", origin.add("/a", Thing(BODY)), "-o", target).code == 1
    assert victim.read_bytes() == b"mine"


def test_a_directory_is_made_and_the_same_command_again_is_fine(box: Box, origin: Origin) -> None:
    urls = [origin.add("/one.bin", Thing(b"1")), origin.add("/dir/two.bin", Thing(b"2")) + "?x=1"]
    directory = box.home / "new" / "dir"

    for _ in range(2):
        box("get", *urls, "-d", directory).ok()

    assert {path.name: path.read_bytes() for path in directory.iterdir()} == {"one.bin": b"1", "two.bin": b"2"}


def test_two_contents_of_one_name_get_two_names(box: Box, origin: Origin) -> None:
    urls = [origin.add("/a/same.txt", Thing(b"one")), origin.add("/b/same.txt", Thing(b"two"))]

    box("get", *urls, "-d", box.home / "out").ok()

    names = sorted(path.name for path in (box.home / "out").iterdir())
    assert len(names) == 2
    assert all(name.startswith("same") and name.endswith(".txt") for name in names)


@pytest.mark.parametrize(
    "name", ["../../escape.txt", "/etc/escape.txt", "..\\..\\escape.txt", "..", ".", "", "a/../../b", "x\x1b[31m.txt"]
)
def test_a_hostile_name_stays_inside(box: Box, origin: Origin, name: str) -> None:
    header = name.replace("\x1b", "")
    url = origin.add("/thing.bin", named(header))
    directory = box.home / "inside" / "out"

    box("get", url, "-d", directory).ok()

    (placed,) = directory.iterdir()
    assert placed.read_bytes() == BODY
    outside = [Path(at, file) for at, _, files in os.walk(box.home / "inside") for file in files]
    assert outside == [placed]


@pytest.mark.parametrize(
    ("display", "url", "expected"),
    [
        ("paper.pdf", "https://a.example/x", "paper.pdf"),
        (None, "https://a.example/dir/x%20y.pdf?z=1", "x y.pdf"),
        (None, "https://a.example/", "f" * 64),
        ("../../x", None, "x"),
        ("..", None, "f" * 64),
        ("dir/", None, "dir"),
        ("CON", None, "_CON"),
        (".hidden", None, "hidden"),
        ("a\u202etxt.exe", None, "a_txt.exe"),
        ("x" * 500 + ".pdf", None, None),
    ],
)
def test_names_are_one_safe_component(display: str | None, url: str | None, expected: str | None) -> None:
    name = file_name(display, url, "f" * 64)

    assert expected is None or name == expected
    assert "/" not in name
    assert len(name.encode()) <= 255


def test_output_takes_one_url(box: Box) -> None:
    assert box("get", "http://127.0.0.1/a", "http://127.0.0.1/b", "-o", "x").code == 2
    assert not box.depot.exists()


def test_what_is_in_the_way_is_told_with_what_to_do(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    there = box.write("there", "mine")

    assert "--overwrite" in box("get", url, "-o", there).stderr
    below = box("get", url, "-d", there)

    assert below.code == 1
    assert f"{there} is not a directory" in below.stderr
    assert there.read_bytes() == b"mine"


@pytest.mark.parametrize("flag", ["--overwrite", "--force", None])
@pytest.mark.parametrize("what", ["fifo", "device", "link to a fifo", "socket"])
def test_what_is_not_a_plain_file_is_never_replaced(
    box: Box, origin: Origin, monkeypatch: pytest.MonkeyPatch, what: str, flag: str | None
) -> None:
    target = there = box.home / "there"
    if what == "link to a fifo":
        target = box.home / "link"
        target.symlink_to(there)
    if what == "device":
        try:
            os.mknod(there, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            monkeypatch.chdir(box.home)  # a socket's path is short
            server.bind("there")
    else:
        os.mkfifo(there)
    before = os.lstat(target)

    refused = box("get", origin.add("/a", Thing(BODY)), "-o", target, *([flag] if flag else []))

    assert refused.code == 2
    assert "-o -" in refused.stderr
    assert os.lstat(target) == before
    assert origin.requests == []
    assert box("put", box.write("x", "y")).code == 0
    assert box("export", "jsonl", "-o", target).code == 2
    assert os.lstat(target) == before


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "store/.layout.json", "store/new", "new/file", "."])
def test_nothing_is_placed_inside_the_depot(box: Box, origin: Origin, name: str) -> None:
    url = origin.add("/a", Thing(BODY))
    box("get", url).ok()
    refused = box("get", url, "-o", box.depot / name, "--overwrite")
    assert refused.code == 2
    assert "inside the depot" in refused.stderr
    assert box("get", url, "-d", box.depot / name).code == 2
    link = box.home / "link"
    link.symlink_to(box.depot)
    assert box("get", url, "-o", link / "ledger.db", "--force").code == 2
    for form in ("jsonl", "crate", "bag", "tree"):
        assert box("export", form, "-o", box.depot / name).code == 2
    box("verify").ok()


def test_a_ledger_elsewhere_is_not_replaced_either(box: Box, origin: Origin) -> None:
    url, ledger = origin.add("/a", Thing(BODY)), box.home / "my.db"
    box("get", url, "--ledger", ledger).ok()
    assert box("get", url, "--ledger", ledger, "-o", ledger, "--force").code == 2
    box("verify", "--ledger", ledger).ok()


def test_an_empty_name_is_refused(box: Box, origin: Origin) -> None:
    url = origin.add("/a", Thing(BODY))
    assert box("get", url, "-o", "").code == 2
    assert box("get", url, "-d", "").code == 2
    assert box("get", url, "--offline", "--force").code == 2
    assert origin.requests == []


@pytest.mark.parametrize("arguments", [["get", "URL", "-o", "-"], ["export", "jsonl"]])
def test_bytes_for_a_closed_stdout_are_refused(box: Box, origin: Origin, arguments: list[str]) -> None:
    url = origin.add("/a", Thing(BODY))
    box("get", url).ok()
    given = [url if one == "URL" else one for one in arguments]
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command(*given)], env=environment(box.env), capture_output=True, timeout=60
    )
    assert closed.returncode == 2
    assert b"stdout is closed" in closed.stderr


def test_names_cannot_begin_a_line_of_their_own(box: Box) -> None:
    file = box.write("two\nlines\tand a tab", "x")
    assert len(box("put", file).ok().stdout.splitlines()) == 1


def test_the_depot_is_not_adopted(box: Box) -> None:
    box("put", box.write("mine.txt", "mine")).ok()
    for inside in (box.depot, box.depot / "store"):
        assert box("adopt", inside).code == 2
    (told,) = box("adopt", box.home, "--json").ok().of("summary")
    assert (told["new"], told["held"]) == (0, 1)


def test_a_header_without_a_value_is_sent(box: Box, origin: Origin) -> None:
    box("get", origin.add("/a", Thing(BODY)), "--header", "X-Empty: ").ok()
    assert origin.requests[0].headers.get("x-empty") == ""


def test_export_to_a_dash_is_stdout_and_to_nothing_a_usage_error(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    box("put", box.write("mine", "mine")).ok()
    assert box("export", "sums", "-o", "-").ok().stdout == box("export", "sums").ok().stdout != ""
    assert not (tmp_path / "-").exists()
    assert box("export", "sums", "-o", "").code == 2
    assert box("export", "tree", "-o", "-").code == 2


@pytest.mark.parametrize("words", ["purge --older-than 0 --archive", "store copy"])
@pytest.mark.parametrize("inside", ["store", "store/default", "store/.staging/x"])
def test_nothing_foreign_is_written_into_the_store(box: Box, words: str, inside: str) -> None:
    box("put", box.write("mine", "mine")).ok()
    box("get", "http://127.0.0.1:1/refused", "--set", "retry.max_attempts=1")
    before = sorted((box.depot / "store").rglob("*"))
    ran = box(*words.split(), box.depot / inside)
    assert ran.code == 2, ran.stderr
    assert "own store" in ran.stderr
    assert sorted((box.depot / "store").rglob("*")) == before
