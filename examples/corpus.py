"""Download PDFs, extract their text, summarise the index: three kinds of jobs in one ledger, crash-safe end to end.

    python examples/corpus.py DEPOT URL…

Run it again, after a kill or not: what is done is not done twice.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import longshore
from longshore import Input, Result


@longshore.job_type("extract_text", version="1", time_limit_s=60, memory_bytes=1 << 30)
def extract_text(inputs: list[Input], _params: dict[str, Any], ctx: Any) -> Result:
    """Take the readable strings out of a PDF. (A real extractor would go here; the ledger does not care.)"""
    strings = re.findall(rb"\(([^()\\]{3,})\)", inputs[0].read_bytes())
    ctx.progress(1, 1)
    text = "\n".join(one.decode("latin-1") for one in strings)
    return Result(text, artifact_type="text", content_type="text/plain", metadata={"of": inputs[0].sha256})


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
    """Bring the corpus up to date and give its most frequent words."""
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
