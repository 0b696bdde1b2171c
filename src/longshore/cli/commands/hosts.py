"""`longshore hosts`: the limits and the state of hosts; pause, resume and limit them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import moment, readable, say

if TYPE_CHECKING:
    from longshore.domain.settings import HostsSettings
    from longshore.errors import BadInput
    from longshore.ledger import Ledger
    from longshore.ledger.records import Host
    from longshore.ledger.transaction import Tx

ACTIONS: Final = ("list", "show", "pause", "resume", "limit")
DEFAULT: Final = "default"
PAGE: Final = 1_000


@click.command("hosts")
@click.argument("action", type=click.Choice(ACTIONS), default="list", metavar="[list|show|pause|resume|limit]")
@click.argument("host", required=False, metavar="[HOST]")
@click.argument("connections", required=False, metavar="[N]")
@click.option("--for", "span", metavar="SPAN", help="With pause: only for this time (30m, 12h, 2d).")
@click.option("--rate", metavar="R", help="With limit: requests per second; 0: unlimited, `default`: as configured.")
@click.option("--new", "is_new", is_flag=True, help="Also change a host that no job was planned for yet.")
@common
def command(
    call: Call, action: str, host: str | None, connections: str | None, span: str | None, rate: str | None, is_new: bool
) -> int:
    """Show hosts: what they allow, whether they rest, why, until when, and how many jobs wait for them.

    \b
    longshore hosts [list]                    every host that was asked
    longshore hosts show HOST                 one of them
    longshore hosts pause HOST [--for 1h]     ask nothing of it
    longshore hosts resume HOST               ask it again now, also after faults or a Retry-After
    longshore hosts limit HOST N [--rate R]   at most N connections at once; `default`: as configured

    States: `ok` (asked as usual), `resting` (after faults, by Retry-After or by pause --for; then one try decides), `faulty`
    (nothing but faults for hosts.give_up_s: each URL is asked for once), `given up` (no answer at all for hosts.give_up_s: its
    jobs failed, the next one is a new try), `paused`. `waiting` counts all pending jobs of this tenant and project.

    HOST is written as in `longshore failures` (with its port, if there is one), or as a URL. Changes apply to all
    workers from their next claim on.
    """
    if action == "list":
        if host:
            raise click.UsageError(f"`longshore hosts show {host}` shows one host")
        return _list(call)
    if not host:
        raise click.UsageError(f"`longshore hosts {action}` needs a host")
    name = host_name(host)
    changes = _changes(action, connections, span, rate)
    with call.ledger() as ledger:
        if changes:
            if not is_new:
                _check_known(ledger, name)
            _set(call, ledger, name, changes)
        _show(call, ledger, name, is_changed=bool(changes))
    return 0


def host_name(text: str) -> str:
    """Return the name that a host's limits are kept under; a URL gives its host."""
    from longshore.domain.identity.keys import canonical_url, host_of

    return host_of(canonical_url(text if "://" in text else f"https://{text}"))


def _changes(action: str, connections: str | None, span: str | None, rate: str | None) -> dict[str, Any]:
    """Return what an action changes; `for_s` is the length of a pause."""
    if span and action != "pause":
        raise click.UsageError("--for belongs to pause")
    if (rate or connections) and action != "limit":
        raise click.UsageError("N and --rate belong to limit")
    if action == "pause":
        from longshore.cli.time_spans import seconds

        return {"for_s": seconds(span)} if span else {"paused": True}
    if action == "resume":
        return {"paused": False, "cooldown_until": None}
    if action == "limit":
        if connections is None and rate is None:
            raise click.UsageError("`longshore hosts limit HOST N`: N connections at once, or `default`")
        given = {"concurrency": _number(connections, int), "rate_per_s": _number(rate, float)}
        return {name: value for (name, value), text in zip(given.items(), (connections, rate), strict=True) if text}
    return {}


def _number(text: str | None, kind: type[int | float]) -> float | None:
    if text in (None, DEFAULT):
        return None
    try:
        value = kind(text)
    except ValueError:
        raise click.UsageError(f"a limit is a number or `{DEFAULT}`, not {text!r}") from None
    if not value >= (1 if kind is int else 0):
        raise click.UsageError(f"{text} is too small; `longshore hosts pause` stops all requests")
    return value


def _set(call: Call, ledger: Ledger, host: str, changes: dict[str, Any]) -> None:
    """Write the changes and a line of the audit log in one transaction."""
    from longshore.cli.audited import entry
    from longshore.domain.model import SECOND
    from longshore.ledger.operations import audit_log, hosts

    def write(tx: Tx) -> None:
        given = dict(changes)
        if (for_s := given.pop("for_s", None)) is not None:
            given["cooldown_until"] = tx.now + int(for_s * SECOND)
        hosts.set_host(tx, host, given)
        audit_log.audit(tx, call.scope, entry("hosts", host, {"act": "set host", "host": host, **given}))

    ledger.write(write)


def _list(call: Call) -> int:
    from longshore.depot.derived_settings import hosts_with_profiles
    from longshore.ledger.operations import hosts

    limits = hosts_with_profiles(call.settings)
    rows: list[dict[str, Any]] = []
    after = ""
    with call.ledger() as ledger:
        waiting = ledger.read(hosts.pending_by_host, call.scope)
        while page := ledger.read(hosts.hosts, after, PAGE):
            rows += [_facts(one, ledger.now(), limits, waiting) for one in page]
            after = page[-1].host
    if call.json:
        for facts in rows:
            call.output.record("host", facts, flush=False)
        return 0
    if not rows and call.verbosity >= 0:
        say("no host was asked yet")
        return 0
    headings = ["host", "state", "reason", "until", "waiting", "in flight", "limit", "per s", "failures"]
    call.output.table(headings, [_row(facts) for facts in rows])
    return 0


def _show(call: Call, ledger: Ledger, host: str, *, is_changed: bool) -> None:
    from longshore.depot.derived_settings import hosts_with_profiles
    from longshore.ledger.operations.hosts import pending_by_host
    from longshore.ledger.queries import all_tenants

    found = ledger.read(all_tenants.host, host)
    if found is None:
        raise _unknown(ledger, host)
    limits = hosts_with_profiles(call.settings)
    facts = _facts(found, ledger.now(), limits, ledger.read(pending_by_host, call.scope))
    if call.json:
        call.output.record("host", facts)
        return
    if is_changed and not facts["waiting"] and not facts["in_flight"] and call.verbosity >= 0:
        say(f"no job is pending for {host}; the change is kept for later jobs")
    for name, value in facts.items():
        call.output.text(f"{name:<12} {_shown(_for_people(name, value))}")


def _facts(host: Host, now: int, limits: HostsSettings, waiting: dict[str, int]) -> dict[str, Any]:
    """Return the fields of a host's line; the limits are those in force."""
    from longshore.domain.policy.host_limits import HostFacts, limits_of
    from longshore.ledger.queries.all_tenants import host_state

    state, until = host_state(host, now, limits)
    connections, rate = limits_of(HostFacts(host.host, host.concurrency, host.rate_per_s), limits)
    return {
        "host": host.host,
        "state": state,
        "until": moment(until) if until is not None else None,
        "reason": "paused" if host.paused else host.reason if state != "ok" or host.failures else None,
        "waiting": waiting.get(host.host, 0),
        "in_flight": host.in_flight,
        "concurrency": connections,
        "rate_per_s": rate,
        "failures": host.failures,
        "own_limits": host.concurrency is not None or host.rate_per_s is not None,
    }


def _row(facts: dict[str, Any]) -> tuple[object, ...]:
    rate = f"{facts['rate_per_s']:g}" if facts["rate_per_s"] else "-"
    until = _shown(_for_people("until", facts["until"]))
    return (
        facts["host"], facts["state"], facts["reason"] or "-", until, facts["waiting"], facts["in_flight"], facts["concurrency"], rate, facts["failures"],
    )  # fmt: skip


def _for_people(name: str, value: object) -> object:
    """Return a time as people read it; everything else as it is."""
    return readable(str(value)) if name == "until" and value is not None else value


def _check_known(ledger: Ledger, host: str) -> None:
    """Refuse a host that no job names: probably a typing error, or the port is missing."""
    from longshore.ledger.queries import all_tenants

    if ledger.read(all_tenants.host, host) is None:
        raise _unknown(ledger, host)


def _unknown(ledger: Ledger, host: str) -> BadInput:
    """Return the error for a host that no job names, with those that are written nearly like it."""
    from difflib import get_close_matches

    from longshore.errors import BadInput
    from longshore.ledger.operations import hosts

    known = [one.host for one in ledger.read(hosts.hosts, "", PAGE)]
    ported = [name for name in known if name.rpartition(":")[0] == host]
    near = [*ported, *(name for name in get_close_matches(host, known) if name not in ported)][:3]
    meant = f"did you mean {' or '.join(near)}?" if near else "`longshore hosts` lists the known ones."
    return BadInput(f"unknown host {host}: no job names it", hint=f"{meant} `--new` sets it anyway")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
