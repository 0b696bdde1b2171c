"""Outcomes and records are values: frozen, equal by content, a closed set."""

from __future__ import annotations

import dataclasses
import types
import typing

import pytest

from longshore.domain import model, outcomes
from longshore.domain.model import Blob, NewArtifact, Scope, Validators
from longshore.domain.outcomes import Canceled, Completed, Deferred, Failed, Outcome, Released, Reused


def test_the_set_is_closed() -> None:
    assert set(typing.get_args(Outcome)) == {Completed, Reused, Failed, Deferred, Released, Canceled}


def records_of(module: types.ModuleType) -> list[type]:
    """The records that a module defines itself."""
    found = [c for c in vars(module).values() if isinstance(c, type) and dataclasses.is_dataclass(c)]
    return [record for record in found if record.__module__ == module.__name__]


@pytest.mark.parametrize("module", [model, outcomes])
def test_every_record_is_slotted_and_hashed_by_content(module: types.ModuleType) -> None:
    """No attribute can be added, and equal records are one in a set."""
    records = records_of(module)
    assert records
    for record in records:
        assert "__slots__" in vars(record), record
        assert "__hash__" in vars(record), record


def test_outcomes_are_frozen() -> None:
    """The records of the model are frozen too, by the type checker alone: at run time it would cost a job 11 µs."""
    assert all(record.__dataclass_params__.frozen for record in records_of(outcomes))  # type: ignore[attr-defined]


def test_an_interruption_does_not_count_and_a_deferral_does() -> None:
    assert Deferred("connect", "refused", 1.0).counts
    assert not hasattr(Released(), "counts")
    assert Released().reason == "interrupted"


def test_outcomes_are_equal_by_content() -> None:
    blob = Blob("ab" * 32, 7, "p", "local", "text/plain")
    assert Completed((NewArtifact(blob),)) == Completed((NewArtifact(blob),))
    assert Failed("dns", "no") != Failed("dns", "yes")


def test_defaults_are_not_shared() -> None:
    one, other = Failed("dns", "no"), Failed("dns", "no")
    one.facts["x"] = 1
    assert other.facts == {}


def test_a_scope_names_tenant_and_project() -> None:
    assert Scope() == ("default", "default")
    assert Scope("t", "p").tenant_id == "t"


@pytest.mark.parametrize(("etag", "strong"), [('"a"', '"a"'), ('W/"a"', None), (None, None), ("", None)])
def test_only_strong_tags_may_be_relied_on(etag: str | None, strong: str | None) -> None:
    assert Validators(etag).strong_etag == strong
