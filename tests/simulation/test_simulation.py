"""Histories with fixed seeds; `make soak` runs thousands."""

import pytest

from tests.simulation.campaign import found, outcomes
from tests.simulation.history import LEAST_COMMANDS, LEAST_FAULTS, LEAST_TAKEOVERS, run
from tests.simulation.seams import simulated

HISTORIES = 500
TOGETHER = 25
#: Maximum histories to find a reintroduced fault.
MOST = 200


@pytest.mark.parametrize("first", range(0, HISTORIES, TOGETHER))
def test_histories_lose_nothing(first: int) -> None:
    for outcome in outcomes(range(first, first + TOGETHER), jobs=1):
        assert outcome.wrong == [], f"python -m tests.simulation --seed {outcome.seed} --histories 1"
        assert outcome.commands >= LEAST_COMMANDS
        assert outcome.takeovers >= LEAST_TAKEOVERS
        assert outcome.faults.total() >= LEAST_FAULTS


def test_seed_determines_history() -> None:
    with simulated():
        first, again, other = run(7), run(7), run(8)
    assert first == again
    assert first.seconds != other.seconds


@pytest.mark.parametrize(("fault", "first"), [(4, 35), (7, 414), (17, 10)])
def test_reintroduced_bug_is_found(fault: int, first: int) -> None:
    """These appear soon; `make soak NAMES=regressions` finds the others too."""
    assert any(outcome.wrong for outcome in found(range(first, first + MOST), jobs=1, fault=fault))
