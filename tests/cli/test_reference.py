"""The generated pages say what the program does."""

from __future__ import annotations

import pytest

from scripts.reference import FOLDER, PAGES, page


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_what_the_code_says(name: str) -> None:
    """If this fails: `python -m scripts.reference`."""
    assert (FOLDER / name).read_text() == page(name), "run `python -m scripts.reference`"
