"""The examples do what they say, and doing it again does nothing twice."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType

import pytest

import longshore
from tests.support.origin import Origin, Thing, status
from tests.worker import crashing

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
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


def pdf(words: str, *, packed: bool = False) -> Thing:
    """A small PDF with one page of text, its content plain or packed."""
    content = b"BT /F1 12 Tf (" + words.encode() + b") Tj [(dura) -20 (ble)] TJ ET"
    if packed:
        content = zlib.compress(content)
    how = b"/Filter /FlateDecode " if packed else b""
    body = b"%PDF-1.4\n4 0 obj\n<< " + how + b"/Length %d >>\nstream\n" % len(content) + content
    return Thing(body + b"\nendstream\nendobj\n%%EOF\n", content_type="application/pdf")


# Where the example is killed, at the first and at a later hit: every step between a claim and a registered result.
KILLS = [
    "claim.after", "work.begin", "own.begin", "own.ran", "own.published", "work.end", "publish.begin", "publish.staged",
    "publish.intents", "publish.linked", "publish.clean", "settle.before", "settle.after", "ledger.commit",
]  # fmt: skip


def run_example(depot: Path, urls: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the worked example as people do: as a program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}
    env = kept | {"PYTHONPATH": str(ROOT / "src"), **crashing.SETTINGS, **extra}
    command = [sys.executable, str(EXAMPLES / "corpus.py"), str(depot), *urls]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)


def killed_and_run_again(tmp_path: Path, origin: Origin, kills: list[str]) -> None:
    papers = {f"/{n}.pdf": pdf(f"ledger number{'abc'[n]}", packed=n % 2 == 1) for n in range(3)}
    urls = [origin.add(path, thing) for path, thing in papers.items()]
    depot, died = tmp_path / "depot", 0
    for kill in kills:
        done = run_example(
            depot, urls, LONGSHORE_FAILPOINTS=f"{kill.partition('@')[0]}=kill@{kill.partition('@')[2] or 1}"
        )
        died += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    last = run_example(depot, urls)
    assert last.returncode == 0, last.stderr
    assert json.loads(last.stdout) == {"durable": 3, "ledger": 3, "numbera": 1, "numberb": 1, "numberc": 1}
    assert died >= len(kills) - 1, "a kill that never happened proves nothing"
    for path in papers:
        assert origin.count(path, "GET") <= 1 + died
    with longshore.open(depot, network=ALLOW, reconcile={"stale_part_s": 0}) as opened:
        opened.reconcile()
        counted = {status.value: count for status, count in opened.ledger.counts(opened.scope).items() if count}
        assert counted == {"completed": 7}, "three downloads, three texts, one summary: each once"
        kinds = sorted(one.artifact_type for one in opened.ledger.artifacts(opened.scope).items)
        assert kinds.count("text") == 3
        assert kinds.count("summary") == 1
    assert crashing.findings(depot, healed=True) == []


def test_the_corpus_example_survives_kills_and_does_nothing_twice(tmp_path: Path, origin: Origin) -> None:
    killed_and_run_again(tmp_path, origin, ["publish.linked", "own.ran", "settle.before@3"])


@pytest.mark.torture
@pytest.mark.parametrize("kill", [*KILLS, *(f"{name}@3" for name in KILLS)])
def test_the_corpus_example_survives_a_kill_at(tmp_path: Path, origin: Origin, kill: str) -> None:
    killed_and_run_again(tmp_path, origin, [kill])


def test_the_corpus_example_counts_words_and_fetches_once(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = load("corpus", monkeypatch)
    urls = [origin.add("/a.pdf", pdf("durable ledger durable")), origin.add("/b.pdf", pdf("ledger of durable jobs"))]
    first = corpus.main(str(tmp_path / "depot"), urls, network=ALLOW)
    assert first == {"durable": 5, "ledger": 2, "jobs": 1}
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
