"""Liveness, readiness and health. `/livez` and `/readyz` reveal nothing else without a token."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from longshore.depot.doctor.run_checks import checks as checkup
from longshore.errors import LongshoreError
from longshore.ledger.operations import ledger_identity
from longshore.store import TenantQuota
from longshore.web.serializers import View
from longshore.web.service import Service

routes = APIRouter(tags=["health"])


@routes.get("/livez")
async def livez() -> dict[str, str]:
    """Respond as long as the event loop runs."""
    return {"status": "ok"}


@routes.get("/readyz", responses={503: {"description": "Not ready"}})
async def readyz(request: Request) -> JSONResponse:
    """Return whether requests can be served: ledger, store, disk, not draining."""
    service: Service = request.app.state.service
    ready = not service.closing.is_set() and all(check["ok"] for check in await checks(service))
    return JSONResponse({"status": "ok" if ready else "not ready"}, 200 if ready else 503)


async def schema(service: Service) -> str:
    """Return the ledger's schema version."""
    return await service.ledger.read_async(ledger_identity.schema_version)


def room(service: Service) -> TenantQuota | None:
    """Return the free space of the store, if known."""
    try:
        return service.store.room()
    except (LongshoreError, OSError):
        return None


async def disk(service: Service) -> View | None:
    """Show the free space on the store's disk."""
    found = await asyncio.to_thread(room, service)
    if found is None:
        return None
    return {"free_bytes": found.free_bytes, "reserved_bytes": found.reserved_bytes, "floor_bytes": found.floor_bytes}


async def doctor(service: Service) -> list[View]:
    """Run the doctor's checks, as `longshore doctor` does."""
    if service.depot is None:
        return []

    def look() -> list[View]:
        found = checkup(service.depot.settings, set())
        return [{"id": c.id, "status": c.status, "evidence": c.evidence, "remedy": c.remedy} for c in found]

    return await asyncio.to_thread(look)


async def checks(service: Service) -> list[View]:
    """Check ledger, store and disk."""
    found: list[View] = []
    try:
        await schema(service)
        found.append({"name": "ledger", "ok": True, "text": "answers"})
    except LongshoreError:
        found.append({"name": "ledger", "ok": False, "text": "does not answer"})
    there = await asyncio.to_thread(room, service)
    full = there is not None and there.free_bytes <= there.floor_bytes
    text = "does not answer" if there is None else "is full" if full else "has room"
    found.append({"name": "store", "ok": text == "has room", "text": text})
    return found
