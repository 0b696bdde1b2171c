"""Write docs/reference/openapi.json from the routes: `python -m scripts.openapi`. A test fails when it is out of date."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "openapi.json"


def document() -> str:
    """Return the OpenAPI document of the running program."""
    from longshore.ledger import Ledger
    from longshore.store import open_store
    from longshore.web.app import describe, make_app
    from longshore.web.server_options import ServerOptions
    from longshore.web.service import Service

    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder, "ledger.db"), create=True) as ledger:
        store = open_store(str(Path(folder, "store")))
        app = make_app(Service(ledger, store, ServerOptions()))
        return json.dumps(describe(app), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(document(), encoding="utf-8")
