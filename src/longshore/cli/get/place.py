"""Write results of `get` to the user's file names (`-o`, `-d`) or to stdout. A damaged blob is fetched again, once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longshore.cli.get.file_names import Names, is_same
from longshore.cli.output.writer import one_line, say
from longshore.cli.run_command import DAMAGE, OK, UNEXPECTED
from longshore.errors import BlobDamaged, LongshoreError, NotFound
from longshore.store.verify_blob import proven_pieces

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.depot import Depot, Got
    from longshore.domain.model import Artifact, JobRequest

STDOUT = "-"


def place_results(
    call: Call, depot: Depot, requests: Sequence[JobRequest], got: list[Got], how: dict[str, Any], lost: list[Got]
) -> int:
    """Place results and return the exit code; refetched items replace theirs in `got`; `lost` gets the damaged ones."""
    if not how["output"] and not how["directory"]:
        return OK
    placing = _Placing(call, depot, how)
    damaged = [place for place, one in enumerate(got) if not placing.place(one)]
    if damaged:
        again = depot.get([requests[place] for place in damaged], max_wait_s=how["max_wait"], handle_signals=True)
        for place, one in zip(damaged, again, strict=True):
            if one.artifact is not None and placing.place(one):
                got[place] = one
            else:
                say(
                    f"damaged  {one.url}: {one.message or 'its stored bytes are damaged, and it was not fetched again'}"
                )
                placing.code = DAMAGE
                lost.append(got[place])
    return placing.code


class _Placing:
    """Places results; reports each failure and continues."""

    def __init__(self, call: Call, depot: Depot, how: dict[str, Any]) -> None:
        self._call, self._depot, self._how = call, depot, how
        self._names = Names(Path(how["directory"])) if how["directory"] else None
        self.code = OK

    def place(self, one: Got) -> bool:
        """Place one result; False if its blob is damaged."""
        if one.artifact is None:
            return True
        if self._how["output"] == STDOUT:
            return self._to_stdout(one.artifact)
        target = Path(self._how["output"]) if self._names is None else self._names.of(one)
        try:
            self._give_name(one.artifact, target)
        except (BlobDamaged, NotFound) as error:
            say(f"{error}; fetching it again")
            if self._names is not None:
                self._names.forget(one)
            return False
        except (LongshoreError, OSError) as error:
            hint = f"a directory is named with -d {target}" if target.is_dir() else getattr(error, "hint", None)
            say(f"not placed  {target}: {error}" + (f"\n  → {hint}" if hint else ""))
            self.code = self.code or UNEXPECTED
            return True
        if self._call.json:
            self._call.output.record("placed", {"job_id": one.job_id, "path": str(target)}, flush=False)
        elif self._call.verbosity >= 0:
            self._call.output.text(one_line(str(target)))
        return True

    def _give_name(self, artifact: Artifact, target: Path) -> None:
        if is_same(target, artifact):
            return
        self._depot.place(
            artifact,
            Path(os.path.abspath(target)),
            mode="hardlink" if self._how["hardlink"] else "reflink",
            overwrite=self._how["overwrite"] or self._how["force"],
        )

    def _to_stdout(self, artifact: Artifact) -> bool:
        """Write the bytes to stdout; verify them first, so that a pipe gets all or nothing."""
        if not self._depot.prove(artifact):
            say(f"the stored blob {artifact.sha256} is missing or damaged; fetching it again")
            return False
        with self._depot.store.open(artifact.scope, artifact.pointer) as body:
            for piece in proven_pieces(body, artifact.sha256):
                sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return True
