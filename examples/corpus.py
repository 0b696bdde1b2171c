"""Download PDFs, extract their text, summarise the index: three kinds of jobs in one ledger, crash-safe end to end.

    python examples/corpus.py DEPOT URL…

Run it again, after a crash or not: completed jobs are not repeated.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import longshore
from longshore import Input, JobFailed, Result

STREAM = re.compile(rb"(<<(?:[^<>]|<[^<>]*>)*>>)\s*stream\r?\n(.*?)\r?\nendstream", re.DOTALL)


@longshore.job_type("extract_text", version="1", time_limit_s=60, memory_bytes=1 << 30)
def extract_text(inputs: list[Input], _params: dict[str, Any], ctx: Any) -> Result:
    """Extract the text of a simple PDF from its content streams, compressed or not.

    (A real extractor handles fonts and layouts; the ledger works with any extractor.)
    """
    body = inputs[0].read_bytes()
    if not body.startswith(b"%PDF-"):
        raise JobFailed("not a PDF file", again=False)
    lines = [text for stream in streams(body) for text in shown(stream)]
    ctx.progress(1, 1)
    text = "\n".join(lines)
    return Result(text, artifact_type="text", content_type="text/plain", metadata={"of": inputs[0].sha256})


def streams(body: bytes) -> Iterator[bytes]:
    """Yield the decompressed content streams of a PDF."""
    for found in STREAM.finditer(body):
        dictionary, data = found.groups()
        if b"/FlateDecode" not in dictionary:
            yield data
            continue
        try:
            yield zlib.decompressobj().decompress(data, 64 << 20)
        except zlib.error:
            continue  # skip a damaged stream; the others may have text


def shown(stream: bytes) -> Iterator[str]:
    """Yield the strings of a stream's text operators: `(text) Tj` and `[(te) -20 (xt)] TJ`."""
    for block in re.findall(rb"\bBT\b(.*?)\bET\b", stream, re.DOTALL):
        for operand in re.findall(rb"(\((?:\\.|[^()\\])*\)|\[[^\]]*\])\s*T[jJ]", block, re.DOTALL):
            pieces = re.findall(rb"\(((?:\\.|[^()\\])*)\)", operand)
            yield b"".join(re.sub(rb"\\(.)", rb"\1", piece) for piece in pieces).decode("latin-1")


@longshore.job_type("index_summary", version="1")
def index_summary(inputs: list[Input], params: dict[str, Any], ctx: Any) -> Result:
    """Count words over all texts."""
    counts: dict[str, int] = {}
    for place, one in enumerate(inputs):
        ctx.progress(place, len(inputs))
        for word in re.findall(r"[a-z]{4,}", one.read_text().lower()):
            counts[word] = counts.get(word, 0) + 1
    top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: params["words"]]
    return Result(json.dumps(dict(top)), artifact_type="summary", content_type="application/json")


def main(where: str, urls: list[str], **settings: Any) -> dict[str, int]:
    """Update the corpus and return its most frequent words."""
    with longshore.open(where, **settings) as depot:
        papers = [got.artifact for got in depot.get(urls) if got.artifact]
        texts = [depot.submit("extract_text", inputs=[paper]).job_id for paper in papers]
        depot.run(job_types=["extract_text"])
        made = [depot.ledger.results(depot.scope, job_id)[0] for job_id in dict.fromkeys(texts)]
        summary = depot.submit("index_summary", inputs=made, params={"words": 20})
        depot.run(job_types=["index_summary"])
        result = depot.ledger.results(depot.scope, summary.job_id)[0]
        with depot.store.open(depot.scope, result.pointer) as file:
            words: dict[str, int] = json.loads(file.read())
        return words


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:]), indent=2))
