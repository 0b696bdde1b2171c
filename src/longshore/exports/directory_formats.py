"""Bags (RFC 8493), crates (RO-Crate 1.1) and link trees: directories that other tools understand."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote

from longshore.errors import BadInput
from longshore.exports.file_names import Namer, Origins
from longshore.exports.manifest_rows import ManifestRow, Rows, instant
from longshore.exports.public_urls import Published
from longshore.exports.used_names import UsedNames
from longshore.store.local.place_outside import check_no_links

Place = Callable[[ManifestRow, Path], None]  # places a row's bytes at a path that does not exist yet


def _fresh(target: Path) -> Path:
    if target.exists() and any(target.iterdir()):
        raise BadInput(f"{target} is not empty", hint="name a new directory")
    target.mkdir(parents=True, exist_ok=True)
    return target


@contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    """Write a temporary file and rename it when it is complete; remove it on failure."""
    unborn = path.with_name(f".{path.name}.new")
    try:
        with new_file(unborn) as out:
            yield out
        unborn.replace(path)
    finally:
        unborn.unlink(missing_ok=True)


def new_file(path: Path) -> TextIO:
    """Create a file under a temporary name; a link or a file that somebody put there is removed, never written through."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "w", encoding="utf-8")


def link_tree(
    rows: Rows, target: Path, place: Place, template: str = "{name}", origins: Origins = lambda _: None
) -> int:
    """Place every stored file under a name from the template; the files of a torrent keep their folders without one."""
    namer, done, count = Namer(template, origins), UsedNames(), 0
    target.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if row.sha256 is None or not done.first(path := namer(row)):
            continue
        check_no_links(target / path, target)
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        if not _has(target / path, row.sha256):
            place(row, target / path)  # raises an error for a file with other bytes, instead of replacing it
        count += 1
    return count


def _has(path: Path, sha256: str) -> bool:
    """Return whether an earlier export placed the same bytes there."""
    return not path.is_symlink() and path.is_file() and _digest(path) == sha256


def _percent(path: str) -> str:
    """Percent-encode a manifest path as RFC 8493 requires."""
    return path.replace("%", "%25").replace("\n", "%0A").replace("\r", "%0D")


def write_bag(
    rows: Rows, target: Path, place: Place | None, *, made_at: int, published: Published | None = None
) -> int:
    """Write a bag; without `place` write a fetch.txt instead of the bytes."""
    published = published or Published()
    _fresh(target)
    (target / "data").mkdir()
    namer, paths, count, total = Namer(), UsedNames(), 0, 0
    with _written(target / "manifest-sha256.txt") as sums, _written(target / "fetch.txt") as fetch:
        for row in rows:
            if row.sha256 is None or (place is None and (row.url is None or published.leaves_out(row.url))):
                continue
            if not paths.first(path := f"data/{namer(row)}"):
                continue
            if place is not None:
                place(row, target / path)
            elif row.url is not None:
                size = "-" if row.size_bytes is None else row.size_bytes
                fetch.write(f"{quote(published.url(row.url), safe=':/?#[]@!$&()*+,;=%~')} {size} {_percent(path)}\n")
            sums.write(f"{row.sha256}  {_percent(path)}\n")
            count, total = count + 1, total + (row.size_bytes or 0)
    if place is not None:
        (target / "fetch.txt").unlink()
    with _written(target / "bagit.txt") as out:
        out.write("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")
    info = f"Bag-Software-Agent: longshore\nBagging-Date: {str(instant(made_at))[:10]}\nPayload-Oxum: {total}.{count}\n"
    with _written(target / "bag-info.txt") as out:
        out.write(info)
    tags = sorted(name for name in os.listdir(target) if name.endswith(".txt"))
    lines = [f"{_digest(target / name)}  {name}\n" for name in tags]
    with _written(target / "tagmanifest-sha256.txt") as out:
        out.write("".join(lines))
    return count


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_crate(
    rows: Rows, target: Path, place: Place, *, made_at: int, name: str, published: Published | None = None
) -> int:
    """Write an RO-Crate: the files and one JSON-LD description, which is streamed as well."""
    published = published or Published()
    _fresh(target)
    namer, paths, count = Namer(reserved=("ro-crate-metadata.json",)), UsedNames(), 0
    with _written(target / "ro-crate-metadata.json") as out:
        out.write('{"@context":"https://w3id.org/ro/crate/1.1/context","@graph":[\n')
        about = {
            "@id": "ro-crate-metadata.json",
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        }
        out.write(json.dumps(about) + ",\n")
        for row in rows:
            if row.sha256 is None or not paths.first(path := namer(row)):
                continue
            place(row, target / path)
            out.write(json.dumps(_entity(row, path, published), ensure_ascii=False) + ",\n")
            count += 1
        root = {"@id": "./", "@type": "Dataset", "name": name, "datePublished": instant(made_at)}
        out.write(json.dumps(root, ensure_ascii=False)[:-1] + ', "hasPart": [')
        for place_in_list, path in enumerate(paths):
            out.write(("," if place_in_list else "") + json.dumps({"@id": quote(path)}))
        out.write("]}\n]}\n")
    return count


def _entity(row: ManifestRow, path: str, published: Published) -> dict[str, Any]:
    body: dict[str, Any] = {
        "@id": quote(path),
        "@type": "File",
        "name": path,
        "contentSize": str(row.size_bytes),
        "encodingFormat": row.content_type,
        "sha256": row.sha256,
        "identifier": published.name(row.work_id) if row.work_id else None,
        "url": published.url(row.url) if row.url else None,
        "dateModified": instant(row.completed_at),
    }
    return {key: value for key, value in body.items() if value is not None}
