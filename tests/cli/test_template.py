"""`get --template`: names made of fields, inside the directory, each file once."""

from __future__ import annotations

from pathlib import Path

import pytest

from longshore.domain.name_template import NamedFile, check_template, expand, expected_path
from longshore.errors import BadInput
from tests.cli.conftest import Box
from tests.support.origin import Origin, Thing, drip
from tests.support.program import Started, eventually

PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def host_of(url: str) -> str:
    return url.split("/")[2].replace(":", "_")


def test_names_are_made_of_fields_and_slashes_make_directories(box: Box, origin: Origin) -> None:
    with Origin("127.0.0.2") as other:
        urls = [
            origin.add("/a/paper", Thing(PDF, content_type="application/pdf")),
            other.add("/b/two.bin", Thing(b"2")),
        ]
        box("get", *urls, "-d", box.home / "out", "--template", "{host}/{stem}.{ext}").ok()

    assert tree(box.home / "out") == {f"{host_of(urls[0])}/paper.pdf": PDF, f"{host_of(urls[1])}/two.bin": b"2"}


def test_the_names_are_those_of_an_exported_tree(box: Box, origin: Origin) -> None:
    lines = [
        f'{{"url": "{origin.add(f"/{n}.bin", Thing(bytes([n])))}", "work_id": "doi:10.1/{n}"}}\n' for n in range(5)
    ]
    listing = box.write("list.jsonl", "".join(lines))
    template = "{work_id}/{shard}/{job_id}-{artifact_id}-{sha256}-{name}"

    box("get", "-i", listing, "-d", box.home / "got", "--template", template).ok()
    box("export", "tree", "-o", box.home / "exported", "--template", template).ok()

    assert tree(box.home / "got") == tree(box.home / "exported")
    assert sorted(path.name for path in (box.home / "got").iterdir()) == [f"doi_10.1_{n}" for n in range(5)]


def test_the_same_command_again_places_nothing_new(box: Box, origin: Origin) -> None:
    urls = [origin.add(f"/{way}/same.txt", Thing(way.encode())) for way in ("a", "b", "c")]
    asked = ("get", *urls, "-d", box.home / "out", "--template", "x/{name}")
    box(*asked).ok()
    before = {path: path.stat() for path in (box.home / "out").rglob("*")}

    again = box(*asked, "--json").ok()

    assert {path: path.stat() for path in (box.home / "out").rglob("*")} == before
    assert sorted(tree(box.home / "out").values()) == [b"a", b"b", b"c"]
    assert tree(box.home / "out")["x/same.txt"] == b"a"
    assert {Path(line["path"]) for line in again.of("placed")} == {path for path in before if path.is_file()}


def test_stored_files_are_placed_without_a_request(box: Box, origin: Origin) -> None:
    url = origin.add("/a.bin", Thing(b"a"))
    box("get", url).ok()
    asked = len(origin.requests)

    box("get", url, "-d", box.home / "out", "--template", "{shard}/{name}").ok()

    assert len(origin.requests) == asked
    assert [name.count("/") for name in tree(box.home / "out")] == [1]


def test_another_file_of_that_name_is_kept(box: Box, origin: Origin) -> None:
    (box.home / "out" / "x").mkdir(parents=True)
    mine = box.write("out/x/a.txt", "mine")

    box("get", origin.add("/a.txt", Thing(b"theirs")), "-d", box.home / "out", "--template", "x/{name}").ok()

    assert mine.read_text() == "mine"
    assert sorted(tree(box.home / "out").values()) == [b"mine", b"theirs"]


@pytest.mark.parametrize("command", ["get", "export"])
@pytest.mark.parametrize("there", ["nothing", "the same bytes"])
def test_a_planted_link_is_not_followed(box: Box, origin: Origin, command: str, there: str) -> None:
    url = origin.add("/a.txt", Thing(b"theirs"))
    outside = box.home / "outside"
    outside.mkdir()
    (box.home / "out").mkdir()
    (box.home / "out" / "x").symlink_to(outside)
    if there == "the same bytes":
        (outside / "a.txt").write_bytes(b"theirs")
    before = tree(outside)
    if command == "get":
        refused = box("get", url, "-d", box.home / "out", "--template", "x/{name}")
    else:
        box("get", url).ok()
        refused = box("export", "tree", "-o", box.home / "out", "--template", "x/{name}")

    assert refused.code == (1 if command == "get" else 2)
    assert "out/x is a symbolic link" in refused.stderr
    assert tree(outside) == before


def test_the_directory_itself_may_be_a_link(box: Box, origin: Origin) -> None:
    (box.home / "real").mkdir()
    (box.home / "out").symlink_to(box.home / "real")

    box("get", origin.add("/a.txt", Thing(b"a")), "-d", box.home / "out", "--template", "x/{name}").ok()

    assert tree(box.home / "real") == {"x/a.txt": b"a"}


@pytest.mark.parametrize(
    "template",
    ["", "{name", "{sha256:.8}", "{title}", "/etc/{name}", "../{name}", "a/../{name}", "{host}/", "a//{name}"],
)
@pytest.mark.parametrize("held", [False, True])
def test_a_bad_template_is_refused_before_anything_is_fetched(
    box: Box, origin: Origin, template: str, held: bool
) -> None:
    url = origin.add("/a", Thing(b"a"))
    if held:
        box("get", url).ok()
    asked = len(origin.requests)

    refused = box("get", url, "-d", box.home / "out", "--template", template)

    assert refused.code == 2
    assert "template" in refused.stderr
    assert len(origin.requests) == asked
    assert not (box.home / "out").exists()
    assert box("export", "tree", "-o", box.home / "tree", "--template", template).code == 2


@pytest.mark.parametrize("held", [False, True])
def test_a_template_without_a_directory_says_what_to_do(box: Box, origin: Origin, held: bool) -> None:
    url = origin.add("/a", Thing(b"a"))
    if held:
        box("get", url).ok()
    asked = len(origin.requests)

    refused = box("get", url, "--template", "{name}")

    assert refused.code == 2
    assert "-d DIR" in refused.stderr
    assert len(origin.requests) == asked


def test_each_file_is_placed_when_it_is_done(box: Box, origin: Origin) -> None:
    """Also with a template that keeps files apart only by what is known after the fetch."""
    urls = [origin.add("/a.bin", Thing(b"a")), origin.add("/slow.bin", drip(Thing(b"x" * 10_000), 1, 0.5))]
    asked = ("get", *urls, "-d", box.home / "out", "--template", "{sha256}.{ext}")

    started = Started(box.home / "process", *asked, env=box.env)
    try:
        eventually(lambda: b"a" in tree(box.home / "out").values(), "the first file")
        assert started.process.poll() is None
    finally:
        started.process.kill()
        started.process.wait()


def test_values_cannot_add_a_directory() -> None:
    hostile = NamedFile("../../x", "http://../..:1/y", "../../etc", "ab" * 32, "text/plain", "..", "/")
    for template in ("{name}", "{host}/{name}", "{work_id}/{artifact_id}/{job_id}", "{stem}/{ext}"):
        parts = expand(template, hostile).split("/")
        assert len(parts) == template.count("/") + 1
        assert not {"", ".", ".."}.intersection(parts)


def test_what_is_expected_of_a_path_ignores_what_is_not_known_yet() -> None:
    one = NamedFile("A.pdf", "http://h/A.pdf", None, "ab" * 32, "application/pdf", "1", "2")
    other = NamedFile("a.pdf", "http://h/x/a.pdf", None)
    assert expected_path("{shard}/{host}/{stem}.{ext}", one) == expected_path("{shard}/{host}/{stem}.{ext}", other)
    assert expected_path("{host}/{sha256}", one) is None


def test_a_template_of_plain_words_is_fine() -> None:
    check_template("all of them/{name}")
    with pytest.raises(BadInput):
        check_template("all/./{name}")
