"""Servers that lie at random: a seeded sample in CI, thousands in `make torture`; what failed once is kept as a script."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.torture.liars.play import play
from tests.torture.liars.strategies import scenarios
from tests.torture.liars.world import Scenario

KEPT = sorted(Path(__file__).with_name("kept").glob("*.json"))
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept(path: Path) -> None:
    play(Scenario.read(path.read_text()))


@pytest.mark.parametrize("number", range(3))
def test_a_sample(number: int) -> None:
    """The same scenarios in every run: what CI sees is not a matter of luck."""

    @seed(number)
    @settings(max_examples=25, deadline=None, database=None, suppress_health_check=_QUIET, phases=[Phase.generate])
    @given(scenarios())
    def sample(scenario: Scenario) -> None:
        _play(scenario)

    sample()


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(8))
def test_thousands(number: int) -> None:
    @seed(1000 + number)
    @settings(max_examples=250, deadline=None, database=None, suppress_health_check=_QUIET, report_multiple_bugs=False)
    @given(scenarios())
    def many(scenario: Scenario) -> None:
        _play(scenario)

    many()


def _play(scenario: Scenario) -> None:
    try:
        play(scenario)
    except AssertionError as error:
        error.add_note(f"keep this as tests/torture/liars/kept/NAME.json:\n{scenario.script()}")
        raise
