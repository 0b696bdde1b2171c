"""The application: layers, routes, nothing else."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from longshore import __version__
from longshore.web import actions, health, metrics, pages, problems, session, statics
from longshore.web.access import Access, Reader
from longshore.web.api import artifacts, batch, events, jobs, numbers, operator, torrents
from longshore.web.guard import Guard
from longshore.web.models import ProblemOut
from longshore.web.service import Service

DESCRIPTION = (
    "Hand in work, watch it, read what is held. Every request needs a token (`longshore token create`), which is bound to "
    "one tenant and project. Errors are problem+json with a `reason`."
)


def make_app(service: Service) -> FastAPI:
    """Build the application around one depot."""
    app = FastAPI(
        title="Longshore",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.statics = statics.load()
    problems.install(app, pages.for_people)
    for part in (jobs, batch, artifacts, torrents, events, numbers, operator, health, metrics):
        app.include_router(part.routes)
    for part in (statics, session, actions, pages):
        app.include_router(part.routes)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(caller: Reader) -> dict[str, Any]:
        """Describe the API."""
        return describe(app)

    settings = service.settings
    limits = {"/api/v1/jobs:batch": settings.max_batch_bytes, "/api/v1/artifacts": settings.max_upload_bytes}
    app.add_middleware(Access, service=service)
    app.add_middleware(
        Guard,
        settings=settings,
        body_limit=lambda path: limits.get(path, settings.max_body_bytes),
        shown=pages.for_people,
    )
    return app


def describe(app: FastAPI) -> dict[str, Any]:
    """Write the OpenAPI document."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            openapi_version="3.1.0",
        )
        schemas = document["components"]["schemas"]
        schemas[ProblemOut.__name__] = ProblemOut.model_json_schema()
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for path in document["paths"].values():
            for operation in path.values():
                _own_problems(operation)
        app.openapi_schema = document
    return app.openapi_schema


def _own_problems(operation: dict[str, Any]) -> None:
    # FastAPI describes its own 422; ours is a problem document like all the others.
    answers = operation.get("responses", {})
    if "HTTPValidationError" in str(answers.get("422", "")):
        problem = {"schema": {"$ref": f"#/components/schemas/{ProblemOut.__name__}"}}
        answers["422"] = {"description": "Understood, but not acceptable", "content": {problems.MEDIA_TYPE: problem}}
