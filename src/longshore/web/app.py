"""The application: middleware and routes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from longshore import __version__
from longshore.web import health, metrics, problems
from longshore.web.api import admin, artifacts, deletion, events, feed, jobs, stats, submit_batch, torrents
from longshore.web.api.models import ProblemOut
from longshore.web.dashboard import actions, failures_page, pages, search_page, sign_in, static_files
from longshore.web.security.auth import Access, Reader
from longshore.web.security.bodies import Bodies
from longshore.web.security.middleware import Guard
from longshore.web.serve_log import RequestLog
from longshore.web.service import Service

DESCRIPTION = (
    "Submit jobs, follow their progress, read the stored artifacts. "
    "Every request needs a token (`longshore token create`), which is bound to "
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
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.state.statics = static_files.load()
    problems.install(app, pages.for_people)
    for part in (jobs, submit_batch, artifacts, deletion, feed, torrents, events, stats, admin, health, metrics):
        app.include_router(part.routes)
    for part in (static_files, sign_in, actions, pages, failures_page, search_page):
        app.include_router(part.routes)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(caller: Reader) -> dict[str, Any]:
        """Describe the API."""
        return describe(app)

    settings = service.settings
    limits = {"/api/v1/jobs:batch": settings.max_batch_bytes, "/api/v1/artifacts": settings.max_upload_bytes}
    bodies = Bodies(settings, lambda path: limits.get(path, settings.max_body_bytes))
    app.add_middleware(Access, service=service, bodies=bodies)
    app.add_middleware(Guard, settings=settings, shown=pages.for_people)
    app.add_middleware(RequestLog)
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
    # FastAPI describes its own 422; this service responds with a problem document instead.
    answers = operation.get("responses", {})
    if "HTTPValidationError" in str(answers.get("422", "")):
        problem = {"schema": {"$ref": f"#/components/schemas/{ProblemOut.__name__}"}}
        answers["422"] = {"description": "Unprocessable content", "content": {problems.MEDIA_TYPE: problem}}
