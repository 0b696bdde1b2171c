"""`longshore store`: maintenance of the store."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import counted, say, size
from longshore.cli.run_command import DAMAGE, OK
from longshore.errors import StoreError


@click.group("store")
def command() -> None:
    """Maintain the store."""


@command.command("copy")
@click.argument("target", metavar="PLACE")
@click.option(
    "--verify/--no-verify", default=True, help="Hash blobs that PLACE already has, or trust their size [default: hash]."
)
@common
def copy(call: Call, target: str, *, verify: bool) -> int:
    """Copy every blob to PLACE: a directory, s3://bucket/prefix or postgresql://….

    It can be interrupted and repeated. Every blob is hashed on the way. Afterwards name PLACE with --store,
    LONGSHORE_STORE or in longshore.toml. Exit 5 when a blob does not match its hash; it is not copied.
    """
    from longshore.depot.output_paths import check_outside_store
    from longshore.depot.owned_store import open_store_of
    from longshore.store.copy import copy_store

    check_outside_store(target, call.settings)
    with call.depot() as depot:
        other = open_store_of(depot.settings, depot.ledger, target)
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
            say(f"{counted(done.copied, 'blob')} copied ({size(done.bytes_copied)}), {done.held} there before")
    return DAMAGE if done.damaged else OK
