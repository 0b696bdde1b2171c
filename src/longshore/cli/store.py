"""`longshore store`: the store itself."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output import say, size
from longshore.cli.program import DAMAGE, OK
from longshore.errors import StoreError


@click.group("store")
def command() -> None:
    """Look after the store itself."""


@command.command("copy")
@click.argument("target", metavar="PLACE")
@click.option(
    "--verify/--no-verify", default=True, help="Read again what PLACE held before, or trust its size [default: read]."
)
@common
def copy(call: Call, target: str, *, verify: bool) -> int:
    """Copy every blob to PLACE: a directory, s3://bucket/prefix or postgresql://….

    It can be interrupted and repeated. Every blob is hashed on the way. Afterwards name PLACE with --store,
    LONGSHORE_STORE or in longshore.toml. Exit 5 when a blob is not what its name says; it is not copied.
    """
    from longshore.depot.wiring import store_settings
    from longshore.store import open_store
    from longshore.store.copying import copy_store

    with call.depot() as depot:
        other = open_store(target, store_settings(depot.settings))
        try:
            done = copy_store(depot.store, other, verify=verify)
        finally:
            other.close()
    if done.moved:
        raise StoreError("the two stores lay out blobs differently", hint="give both the same shard.width")
    if call.json:
        facts = {"items": done.copied, "bytes": done.bytes_copied, "there": done.held, "damaged": len(done.damaged)}
        call.output.record("summary", {"command": "store copy", **facts})
    else:
        for held in done.damaged:
            say(f"damaged, not copied: {held.sha256}")
        if call.verbosity >= 0:
            say(f"{done.copied} blobs copied ({size(done.bytes_copied)}), {done.held} there before")
    return DAMAGE if done.damaged else OK
