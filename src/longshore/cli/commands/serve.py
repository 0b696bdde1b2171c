"""`longshore serve`: API, dashboard, metrics and workers in one process."""

from __future__ import annotations

import signal
import sys

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say


@click.command("serve")
@click.option("--host", metavar="ADDRESS", help="Address to listen on [default: 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port; 0 takes a free one [default: 8642].")
@click.option(
    "--name", "names", multiple=True, metavar="HOST",
    help="Accepted Host name (e.g. a proxy's); repeatable [default: any; on loopback localhost only].",
)  # fmt: skip
@click.option("--no-workers", is_flag=True, help="Only serve; `longshore run --forever` runs the jobs elsewhere.")
@click.option("--link", is_flag=True, help="Print a one-time sign-in link even if tokens exist (loopback only).")
@click.option("--secure-cookies", is_flag=True, help="Mark cookies Secure: a proxy terminates TLS.")
@common
def command(
    call: Call,
    host: str | None,
    port: int | None,
    names: tuple[str, ...],
    *,
    no_workers: bool,
    link: bool,
    secure_cookies: bool,
) -> int:
    """Serve the API at /api/v1, the dashboard at / and metrics at /metrics, and run jobs in the same process.

    Everything but /livez and /readyz needs a token (`longshore token create`). Without any token, on loopback, a link
    is printed that opens the dashboard once. Requests and ended jobs are logged to stderr (`serve.log_level`,
    `serve.log_format`); -q logs warnings only, -v everything.
    """
    try:
        from longshore.web.serve_log import log_to
        from longshore.web.server import serve
        from longshore.web.server_options import ServerOptions
    except ModuleNotFoundError as missing:
        raise click.UsageError(f"serve needs the package {missing.name}: pip install 'longshore[serve]'") from None
    from longshore.depot import AsyncDepot
    from longshore.depot.sync_depot import drive

    settings = ServerOptions(
        host=host or call.settings.serve.host,
        port=call.settings.serve.port if port is None else port,
        names=names or call.settings.serve.names,
        workers=not no_workers,
        secure_cookies=secure_cookies,
        connections=call.settings.serve.connections,
        connections_per_address=call.settings.serve.connections_per_address,
        head_timeout_s=call.settings.serve.head_timeout_s,
        min_upload_bytes_s=call.settings.serve.min_upload_bytes_s,
        requests_per_token=call.settings.serve.requests_per_token,
        waits_per_token=call.settings.serve.waits_per_token,
        tls_certificate=call.settings.serve.tls_certificate,
        tls_key=call.settings.serve.tls_key,
        trusted_proxies=call.settings.serve.trusted_proxies,
        session_idle_s=call.settings.serve.session_idle_s,
        audit_reads=call.settings.serve.audit_reads,
    )
    level = {-1: "warning", 0: call.settings.serve.log_level, 1: "debug"}[max(-1, min(call.verbosity, 1))]
    log_to(sys.stderr, level, call.settings.serve.log_format)

    def tell(url: str, first: str | None) -> None:
        if call.json:
            call.output.record("serving", {"url": url, "first": first})
            return
        say(f"Longshore serves {url}")
        if settings.is_bare():
            say("WARNING: without TLS, tokens and everything else can be read on the way by others.")
            say(
                "  → set serve.tls_certificate and serve.tls_key, or put a proxy before it and name it in serve.trusted_proxies"
            )
        if first:
            say(f"Open the dashboard (once, this machine only): {first}")

    call.tell_new()
    with AsyncDepot.open(settings=call.settings) as depot:
        number = drive(serve(depot, settings, tell, link=link))
    return {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, 0)  # type: ignore[call-overload, no-any-return]
