"""Works of scholarly catalogues: the DOI identifies the work, and its PDF locations become the URL and mirrors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from longshore.domain.identity.requests import download_request, without_other_schemes
from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.lines import BadLine, text_lines

PDF: Final = "application/pdf"
_DOI_PREFIX: Final = re.compile(r"(?:https?://(?:dx\.)?doi\.org/|doi:)?(10\..+)\Z", re.IGNORECASE)
_DOI: Final = re.compile(
    r"(?:https?://(?:dx\.)?doi\.org/|doi:\s*)?(10\.\d{4,9}(?:\.\d+)*/\S+)\Z", re.IGNORECASE | re.ASCII
)
_IN_DOI: Final = "/:;()[]@!$&'*+,=-._~"
ARXIV_ID: Final = re.compile(
    r"(?:arxiv:)?(?P<base>\d{4}\.\d{4,5}|[a-z-]+(?:\.[a-z]{2})?/\d{7})(?P<version>v\d{1,9})?\Z",
    re.IGNORECASE | re.ASCII,
)


class NoFile(BadInput):
    """A work without a location of a file: normal in a catalogue."""


class Doi(NamedTuple):
    """A DOI as a URL and as the id of its work."""

    url: str
    work_id: str


def doi_of(text: str) -> Doi | None:
    """Return a DOI that is written bare, with `doi:` or as a URL of the resolver; None if it is none."""
    match = _DOI.match(text.strip())
    return Doi(f"https://doi.org/{quote(match[1], safe=_IN_DOI)}", f"doi:{match[1].lower()}") if match else None


def bare_doi(text: str) -> Doi | None:
    """Return a DOI that is not a URL already: `10.1234/abc` or `doi:10.1234/abc`."""
    return doi_of(text) if text.lstrip()[:3] == "10." or text.lstrip()[:4].lower() == "doi:" else None


def work_id_of_doi(doi: object) -> str | None:
    """Normalize a DOI: lower case, without the resolver."""
    match = _DOI_PREFIX.match(doi.strip()) if isinstance(doi, str) else None
    return f"doi:{match[1].lower()}" if match else None


def openalex_work(record: Mapping[str, Any]) -> JobRequest:
    """Return the job for an OpenAlex work: the best open location first, then the others as listed."""
    places = [record.get("best_oa_location"), record.get("primary_location"), *_list(record, "locations")]
    urls = _urls(place.get("pdf_url") for place in places if isinstance(place, Mapping))
    if not urls:
        raise NoFile("the work has no location with a pdf_url")
    name = record.get("id")
    reference = name.rpartition("/")[2] if isinstance(name, str) else None
    work_id = work_id_of_doi(record.get("doi")) or (f"openalex:{reference}" if reference else None)
    return download_request(urls[0], mirrors=urls[1:], work_id=work_id, artifact_id=reference, media_type=PDF)


def unpaywall_work(record: Mapping[str, Any]) -> JobRequest:
    """Return the job for an Unpaywall record: all `url_for_pdf`, best first, or else all `url`."""
    places = [
        one for one in [record.get("best_oa_location"), *_list(record, "oa_locations")] if isinstance(one, Mapping)
    ]
    pdfs = _urls(place.get("url_for_pdf") for place in places)
    urls = pdfs or _urls(place.get("url") for place in places)
    if not urls:
        raise NoFile("the work has no open location")
    work_id = work_id_of_doi(record.get("doi"))
    return download_request(urls[0], mirrors=urls[1:], work_id=work_id, media_type=PDF if pdfs else None)


def _list(record: Mapping[str, Any], name: str) -> list[Any]:
    value = record.get(name)
    return value if isinstance(value, list) else []


def _urls(values: Iterator[Any]) -> list[str]:
    named = dict.fromkeys(value.strip() for value in values if isinstance(value, str) and value.strip())
    return without_other_schemes(list(named))


def read_arxiv(blocks: Iterator[bytes]) -> Iterator[JobRequest | BadLine]:
    """Read arXiv ids, one per line; use the export host, as arXiv asks programs to do."""
    for number, line in text_lines(blocks):
        if isinstance(line, BadLine):
            yield line
            continue
        word = line.strip()
        if not word or word.startswith("#"):
            continue
        match = ARXIV_ID.match(word)
        if match is None:
            yield BadLine(number, f"not an arXiv id: {word[:80]!r}", line.encode())
            continue
        full = match["base"] + (match["version"] or "").lower()
        yield download_request(
            f"https://export.arxiv.org/pdf/{full}",
            mirrors=[f"https://arxiv.org/pdf/{full}"],
            work_id=f"arxiv:{match['base']}",
            artifact_id=f"arxiv:{full}",
            media_type=PDF,
            name=full.replace("/", "_") + ".pdf",
        )
