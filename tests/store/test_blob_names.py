"""Names in a store: two tenants never meet, and nothing leaves the root."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from longshore.domain.model import Scope
from longshore.errors import NotFound, StoreError
from longshore.store import blob_names

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=300)


@given(TEXT, TEXT)
def test_encoding_is_injective_also_where_case_is_folded(one: str, two: str) -> None:
    assert (blob_names.encode(one).casefold() == blob_names.encode(two).casefold()) == (one == two)


@given(TEXT)
def test_an_encoded_name_is_one_safe_component(name: str) -> None:
    encoded = blob_names.encode(name)
    assert 0 < len(encoded) <= 200
    assert encoded.isascii()
    assert "/" not in encoded
    assert encoded[0] not in ".-_"
    assert blob_names.is_hashed(encoded) or blob_names.decode(encoded) == name


@pytest.mark.parametrize("plain", ["default", "acme", "a.b-c_d", "0", "x" * 200])
def test_plain_names_stay_as_they_are(plain: str) -> None:
    assert blob_names.encode(plain) == plain


@pytest.mark.parametrize("name", ["..", ".", ".staging", "A", "a/b", "=41", "é", "x" * 201, ""])
def test_others_do_not(name: str) -> None:
    assert blob_names.encode(name) != name


@given(TEXT, TEXT)
def test_a_pointer_belongs_to_its_scope_only(tenant: str, project: str) -> None:
    scope = Scope(tenant, project)
    pointer = blob_names.place(scope, "ab" * 32, ".pdf", 2).pointer
    assert blob_names.parse(scope, pointer).sha256 == "ab" * 32
    with pytest.raises(NotFound):
        blob_names.parse(Scope(tenant + "x", project), pointer)


@pytest.mark.parametrize("width", [0, 2, 4])
def test_any_width_can_be_parsed(width: int) -> None:
    scope = Scope()
    place = blob_names.place(scope, "cd" * 32, "", width)
    assert blob_names.parse(scope, place.pointer) == place


def test_the_extension_is_a_function_of_the_bytes() -> None:
    assert blob_names.extension(b"%PDF-1.4") == ".pdf"
    assert blob_names.extension(b"\x1f\x8b\x08") == ".gz"
    assert blob_names.extension(b"hello") == ""
    assert blob_names.extension(b"") == ""
    assert all(len(magic) <= blob_names.HEAD_BYTES for magic, _ in blob_names._MAGIC)


@pytest.mark.parametrize("ext", ["/../x", ".", "pdf", ".PDF", ".a.b.c", ".toolongext"])
def test_a_strange_extension_is_refused(ext: str) -> None:
    with pytest.raises(StoreError):
        blob_names.check_extension(ext)
