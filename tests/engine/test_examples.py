"""The examples do what they say, and doing it again does nothing twice."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.origin import Origin, Thing, status

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ALLOW = {"allow": ["127.0.0.0/8"]}


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))  # other processes find its handlers by the same name
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def pdf(words: str) -> Thing:
    return Thing(b"%PDF-1.4\nBT (" + words.encode() + b") Tj ET\n%%EOF\n", content_type="application/pdf")


def test_the_corpus_example_counts_words_and_fetches_once(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = load("corpus", monkeypatch)
    urls = [origin.add("/a.pdf", pdf("durable ledger durable")), origin.add("/b.pdf", pdf("ledger of durable jobs"))]
    first = corpus.main(str(tmp_path / "depot"), urls, network=ALLOW)
    assert first == {"durable": 3, "ledger": 2, "jobs": 1}
    assert corpus.main(str(tmp_path / "depot"), urls, network=ALLOW) == first
    assert origin.count("/a.pdf") == origin.count("/b.pdf") == 1


def test_the_list_example_says_what_became_of_each(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = load("mirror_list", monkeypatch)
    good, bad = origin.add("/a", Thing(b"body")), origin.add("/b", status(404))
    outcome = mirror.main(str(tmp_path / "depot"), [good, bad], network=ALLOW)
    assert Path(outcome[good]).read_bytes() == b"body"
    assert outcome[bad].startswith("http_404")
