from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.store import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    store = LocalStore(tmp_path / "store")
    yield store
    store.close()
