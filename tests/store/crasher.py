"""A process that publishes, to be killed at a failpoint: `python -m tests.store.crasher ROOT`. Prints what it holds for done."""

from __future__ import annotations

import sys
from pathlib import Path

from longshore.domain.model import Blob, Validators
from longshore.store import LocalStore
from tests.store.publishing import SCOPE, of_part, staged

SMALL = [b"small %d " % number * 500 for number in range(3)]
LARGE = bytes(range(256)) * 1500


def main(root: Path) -> None:
    store = LocalStore(root)
    part = store.part(SCOPE, "large", 2, adopt=store.old_part(SCOPE, "large"))
    if not part.size_bytes:
        part.begin(url="http://example.org/", validators=Validators('"v1"'), total=len(LARGE))
        part.write(LARGE[:100_000])
        part.checkpoint()
        part.close()
        part = store.part(SCOPE, "large", 3, adopt=store.old_part(SCOPE, "large"))
    part.write(LARGE[part.size_bytes :])
    items = [*(staged(body, f"small{number}") for number, body in enumerate(SMALL)), of_part(part)]
    print("intent", *(item.sha256 for item in items), flush=True)
    store.stage(items)
    for blob in store.link(items):
        assert isinstance(blob, Blob)
        print("linked", blob.pointer, flush=True)
    store.clean(items)
    print("cleaned", flush=True)
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
