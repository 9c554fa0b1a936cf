"""Earlier findings stay fixed, and a thousand new inputs per target find nothing."""

import os
import time

import pytest

from tests.fuzz.mutation import MOST_BYTES
from tests.fuzz.runner import HANGING_S, fuzz
from tests.fuzz.targets import CORPUS, TARGETS, FuzzTarget, by_name


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_targets_survive_thousand_inputs(target: FuzzTarget) -> None:
    """The seeds and the corpus first, then mutations; repeatable."""
    outcome = fuzz(target, seconds=600, seed=1, most=len(target.all_seeds()) + 1000)
    assert [(finding.fault, finding.data[:200]) for finding in outcome.findings] == []


def test_every_corpus_has_a_target() -> None:
    for directory in CORPUS.iterdir():
        if directory.is_dir():
            assert by_name(directory.name)
            assert all(path.stat().st_size <= MOST_BYTES for path in directory.iterdir())


def test_fuzzer_reports_failures_deaths_and_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: bytes) -> None:
        raise KeyError("rude")

    def dies(data: bytes) -> None:
        os._exit(3)

    def hangs(data: bytes) -> None:
        time.sleep(60)

    # On a busy machine, a child may need more than half a second to start or to die.
    for run, fault, longest in (
        (fails, "KeyError: 'rude'", HANGING_S),
        (dies, "the process died: 3", HANGING_S),
        (hangs, "still at work after", 0.6),
    ):
        monkeypatch.setattr("tests.fuzz.runner.HANGING_S", longest)
        target = FuzzTarget("rude", lambda: [b"the input"], lambda run=run: run)  # type: ignore[misc]
        outcome = fuzz(target, seconds=30, seed=1, most=1)
        (finding,) = outcome.findings
        assert finding.fault.startswith(fault)
        assert finding.data == b"the input"
