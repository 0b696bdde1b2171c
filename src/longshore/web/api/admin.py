"""Operator routes: hosts, tokens, the audit log. These concern the whole depot, so they need the scope `admin`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import Path, Response

from longshore.domain.model import Scope
from longshore.domain.policy.tokens import Token
from longshore.ledger.operations import hosts, tokens
from longshore.web import queries
from longshore.web.api.common import After, Limit, PathId, Serving, not_found, router
from longshore.web.api.models import AuditPage, HostIn, HostOut, HostPage, NewToken, TokenIn, Tokens
from longshore.web.problems import Problem
from longshore.web.security.auth import Admin, act
from longshore.web.serializers import View, token_view

routes = router("operator", 404, 422)

HostName = Annotated[str, Path(min_length=1, max_length=300, pattern=r"^[^\s/\x00-\x1f]+$")]


@routes.get("/hosts", response_model=HostPage)
async def list_hosts(caller: Admin, service: Serving, limit: Limit, after: After = None) -> View:
    """List hosts by name with their limits and state."""
    return await service.ledger.read_async(queries.host_page, service.hosts, after, limit)


@routes.get("/hosts/{host}", response_model=HostOut)
async def show_host(host: HostName, caller: Admin, service: Serving) -> View:
    """Show the limits and the state of one host."""
    found: View | None = await service.ledger.read_async(queries.host_view, service.hosts, host)
    if found is None:
        raise not_found("host")
    return found


@routes.patch("/hosts/{host}", response_model=HostOut)
async def set_host(host: HostName, body: HostIn, caller: Admin, service: Serving) -> View:
    """Change a host's limits or pause it; applies from the next claim on."""
    changes: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    if "paused" in changes and changes["paused"] is None:
        raise Problem(422, "bad_input", "paused is true or false")
    await act(
        service, caller, hosts.set_host, host, changes, note=lambda _: {"act": "set host", "host": host, **changes}
    )
    service.wake()
    return await service.ledger.read_async(queries.host_view, service.hosts, host) or {}


@routes.get("/tokens", response_model=Tokens)
async def list_tokens(caller: Admin, service: Serving) -> View:
    """List tokens, never their secrets."""
    found: list[Token] = await service.ledger.read_async(tokens.list_tokens)
    return {"tokens": [token_view(token) for token in found]}


@routes.get("/sessions", response_model=Tokens)
async def list_sessions(caller: Admin, service: Serving) -> View:
    """List open dashboard sessions; `DELETE /tokens/{token_id}` closes one."""
    found: list[Token] = await service.ledger.read_async(tokens.list_sessions)
    return {"tokens": [token_view(token) for token in found]}


@routes.post("/tokens", status_code=201, response_model=NewToken)
async def create_token(body: TokenIn, caller: Admin, service: Serving) -> View:
    """Create a token. Its secret is in this response only."""
    scope = Scope(body.tenant_id, body.project_id)
    secret, token = await act(
        service,
        caller,
        tokens.create_token,
        scope,
        body.scopes,
        name=body.name,
        expires_s=body.expires_s,
        note=lambda made: {"status": 201, **tokens.noted("create token", made[1])},
    )
    return {"token": secret, "info": token_view(token)}


@routes.delete("/tokens/{token_id}", status_code=204, response_class=Response)
async def revoke_token(token_id: PathId, caller: Admin, service: Serving) -> Response:
    """Revoke a token and its sessions."""
    await act(service, caller, tokens.revoke_token, token_id, note=partial(tokens.noted, "revoke token"))
    return Response(status_code=204)


@routes.get("/audit", response_model=AuditPage)
async def show_audit(caller: Admin, service: Serving, limit: Limit, after: After = None) -> View:
    """List changes in this tenant and project, newest first: who, what and when."""
    return await service.ledger.read_async(queries.audit_page, caller.scope, after, limit)
