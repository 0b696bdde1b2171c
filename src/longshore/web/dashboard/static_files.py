"""Static files: the dashboard's own, and uPlot from its wheel. Read once, served with an ETag."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response

from longshore.web.dashboard.compression import accepts_gzip
from longshore.web.dashboard.render import HERE
from longshore.web.problems import Problem

routes = APIRouter(include_in_schema=False)

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Static:
    """One file."""

    body: bytes
    media_type: str
    etag: str
    packed: bytes  # compressed


def _read(path: Path) -> Static:
    body = path.read_bytes()
    return Static(body, _TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"', gzip.compress(body, mtime=0))


def load() -> dict[str, Static]:
    """Read all files that are served under /static."""
    files = {path.name: _read(path) for path in (HERE / "static").iterdir() if path.suffix in _TYPES}
    spec = find_spec("uplot")  # located, not imported: the package would import numpy
    assert spec is not None
    assert spec.submodule_search_locations
    uplot = Path(spec.submodule_search_locations[0]) / "static"
    return files | {"uplot.js": _read(uplot / "uPlot.iife.js"), "uplot.css": _read(uplot / "uPlot.min.css")}


@routes.get("/static/{name}")
async def static(name: str, request: Request) -> Response:
    """Return one file."""
    found: Static | None = request.app.state.statics.get(name)
    if found is None:
        raise Problem(404, "not_found", "no such file")
    headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request):
        return Response(found.packed, media_type=found.media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(found.body, media_type=found.media_type, headers=headers)


@routes.get("/favicon.ico")
async def favicon(request: Request) -> Response:
    """Return the icon for browsers that request /favicon.ico."""
    return await static("icon.svg", request)
