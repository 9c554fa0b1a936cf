"""Diarization error rate: cases worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.lab.evaluation import diarization_threshold, long_diarization
from infra.lab.evaluation.diarization import DiarizationErrors, best_matching, diarization_errors
from infra.lab.evaluation.diarization_threshold import Errors, choose_threshold, merge_curves
from infra.lab.evaluation.meetings import meeting_errors, read_meetings
from streams.voice import levels
from streams.voice.diarization import DiarizationTurn
from tests.audio import RATE, noise
from topics.errors import AudioError

#: A speaks for ten seconds, B for six after a pause of two.
TALK = [DiarizationTurn(0, 10, 0), DiarizationTurn(12, 18, 1)]


@pytest.mark.parametrize(
    ("found", "want"),
    [
        ([DiarizationTurn(0, 10, 7), DiarizationTurn(12, 18, 3)], DiarizationErrors(0, 0, 0, 16)),
        ([], DiarizationErrors(16, 0, 0, 16)),
        ([DiarizationTurn(0, 18, 0)], DiarizationErrors(0, 2, 6, 16)),
        (
            [DiarizationTurn(0, 10, 0), DiarizationTurn(5, 10, 0), DiarizationTurn(12, 18, 1)],
            DiarizationErrors(0, 0, 0, 16),
        ),
    ],
)
def test_by_hand(found: list[DiarizationTurn], want: DiarizationErrors) -> None:
    assert diarization_errors(TALK, found) == want


def test_nothing_counts_inside_the_collar() -> None:
    late = [DiarizationTurn(0.2, 10.2, 0), DiarizationTurn(11.9, 18, 1)]
    assert diarization_errors(TALK, late).rate == pytest.approx(0.5 / 16)
    assert diarization_errors(TALK, late, 0.25).rate == 0
    assert diarization_errors(TALK, late, 0.25).speech_s == pytest.approx(15)
    found = diarization_errors(TALK, [DiarizationTurn(0, 12, 0), DiarizationTurn(12, 18, 1)], 0.25)
    assert found.false_alarm_s == pytest.approx(1.5)


def test_errors_add_up() -> None:
    both = DiarizationErrors(1, 2, 3, 10) + DiarizationErrors(0, 1, 0, 10)
    assert both == DiarizationErrors(1, 3, 3, 20)
    assert both.rate == pytest.approx(0.35)
    assert diarization_errors([], [DiarizationTurn(0, 1, 0)]).false_alarm_s == 1
    assert diarization_errors([], []).rate == 0


@given(rows=st.integers(0, 4), columns=st.integers(0, 5), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_matching_is_the_best_there_is(rows: int, columns: int, seed: int) -> None:
    shared = np.random.default_rng(seed).uniform(0, 9, (rows, columns))
    long = shared if rows >= columns else shared.T
    picks = itertools.permutations(range(long.shape[0]), long.shape[1])
    want = max(sum(long[row, column] for column, row in enumerate(pick)) for pick in picks)
    assert best_matching(shared) == pytest.approx(want)


def test_the_threshold_is_in_the_middle_of_what_is_flat() -> None:
    rates = {0.5: 0.3, 0.6: 0.109, 0.7: 0.1, 0.8: 0.105, 0.9: 0.2}
    found = {threshold: Errors(plain=DiarizationErrors(rate, 0, 0, 1)) for threshold, rate in rates.items()}
    assert choose_threshold(found) == 0.7
    assert choose_threshold(merge_curves([found, found])) == 0.7


def test_meetings_have_a_say_in_the_threshold() -> None:
    rates = {0.6: (0.1, 0.5), 0.7: (0.12, 0.2), 0.8: (0.2, 0.5)}
    found = {
        threshold: Errors(plain=DiarizationErrors(one, 0, 0, 1), meetings=DiarizationErrors(other, 0, 0, 1))
        for threshold, (one, other) in rates.items()
    }
    assert choose_threshold(found) == 0.7


def test_meetings_are_read_and_judged_by_turns_as_users_get_them(tmp_path: Path) -> None:
    assert read_meetings(tmp_path) == []
    (tmp_path / "reference.rttm").write_text(
        "SPEAKER a 1 1.0 4.0 <NA> <NA> Ann <NA> <NA>\nSPEAKER a 1 6.0 2.0 <NA> <NA> Bob <NA> <NA>\n"
    )
    soundfile.write(tmp_path / "a.ogg", noise(10 * RATE) * np.float32(0.01), RATE)
    (meeting,) = read_meetings(tmp_path)
    assert meeting.turns == (DiarizationTurn(1, 5, 0), DiarizationTurn(6, 8, 1))
    assert 10 * np.log10(np.mean(meeting.samples**2)) == pytest.approx(levels.LEVEL_DB, abs=0.5)
    pauses = [DiarizationTurn(1.2, 2, 0), DiarizationTurn(3, 4.8, 0), DiarizationTurn(6.2, 7.8, 1)]
    assert meeting_errors(meeting, pauses).rate == pytest.approx(0)
    assert meeting_errors(meeting, pauses[:2]).rate > 0.2
    (tmp_path / "a.ogg").unlink()
    with pytest.raises(AudioError, match=r"a\.ogg"):
        read_meetings(tmp_path)


@pytest.mark.parametrize(
    ("main", "fault"),
    [(diarization_threshold.main, "has not two folds or more"), (long_diarization.main, "has no folds")],
)
def test_folds_are_judged_by_the_others(
    main: Callable[[list[str]], int], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path), "--folds", str(tmp_path)]) == 1
    assert fault in capsys.readouterr().err
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "speakers.txt").write_text("7\n")
    assert main(["--data", str(tmp_path), "--folds", str(tmp_path)]) == 1
    assert "No such file" in capsys.readouterr().err
