from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.origin import Origin


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server
