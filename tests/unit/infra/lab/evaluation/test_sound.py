"""Recordings through a model: what is stored, what is true where, what is skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from infra.lab.evaluation import sound
from infra.lab.evaluation.recordings import Recording, Span
from tests.unit.infra.lab.evaluation.engines import DEEP, LOUD, Levels, recording
from topics.errors import BadRequest
from topics.scores import STEP, ZERO


def test_windows_and_truth() -> None:
    given = recording("a", [0.0, 0.0, 0.9, 0.9, 0.0], Span(LOUD, 2.0, 4.0), Span(DEEP))
    scored = sound.score_recordings(Levels(0.5, 0.5), [given])
    assert scored.reported[:, 0].tolist() == [False, False, False, False, True, True, True, False, False]
    # Half a second within the span is enough to ask for the tag, any touch to allow it.
    assert scored.truth.true[:, 0].tolist() == [False, False, False, True, True, True, True, True, False]
    assert scored.truth.allowed[:, 0].tolist() == scored.truth.true[:, 0].tolist()
    assert scored.truth.true[:, 1].all()
    assert scored.truth.audible.tolist() == [False, False, False, True, True, True, True, True, False]
    assert scored.truth.minutes == pytest.approx(5 / 60)


def test_a_short_span_is_asked_for_where_it_lies_whole() -> None:
    given = recording("a", [0.0] * 4, Span(LOUD, 1.4, 1.6))
    truth = sound.score_recordings(Levels(0.5, 0.5), [given]).truth
    assert np.flatnonzero(truth.true[:, 0]).tolist() == [2]
    assert np.flatnonzero(truth.allowed[:, 0]).tolist() == [1, 2, 3]


def test_what_does_not_decode_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "b.wav").write_bytes(b"no sound at all")
    broken = [Recording(name, "", (), tmp_path / name, name) for name in ("b.wav", "c.wav")]
    scored = sound.score_recordings(Levels(0.5, 0.5), [broken[0], recording("a", [0.5, 0.5]), broken[1]])
    assert [one.name for one in scored.recordings] == ["a"]
    assert [one.name for one in scored.skipped] == ["b.wav", "c.wav"]
    assert scored.skipped[1].cause == "No such file or directory"
    assert scored.truth.recording.tolist() == [0] * len(scored.stored)
    with pytest.raises(BadRequest, match="no recording can be scored, the first because"):
        sound.score_recordings(Levels(0.5, 0.5), broken)


@pytest.mark.parametrize("points", [(0.5, 0.5), (0.3015, 0.0821), (0.7, 0.123)])
def test_levels_undo_points(points: tuple[float, float]) -> None:
    values = np.linspace(-0.97, 0.97, 50).tolist()
    scored = sound.score_recordings(Levels(*points), [recording("a", values)])
    assert (scored.reported_at(points) == scored.reported).all()
    exact = np.log(scored.probabilities / (1 - scored.probabilities)) / STEP
    assert np.abs(exact - scored.levels).max() <= 1.5
    for level in (-30, -12, 0, 9):
        point = sound.point_at(level)
        certain = scored.levels > level + 1
        assert (scored.reported_at([point, point]) >= certain).all()
        assert not (scored.reported_at([point, point]) & (scored.levels < level)).any()


def test_levels_are_exact_where_points_are_levels() -> None:
    engine = Levels(sound.point_at(-12), sound.point_at(9))
    scored = sound.score_recordings(engine, [recording("a", np.linspace(0, 0.97, 40).tolist())])
    assert (scored.levels == scored.stored.astype(int) - ZERO + np.array([-12, 9])).all()


def test_parts_join_to_the_whole() -> None:
    given = [recording(name, [level] * 3, Span(LOUD)) for name, level in (("a", 0.2), ("b", 0.9), ("c", 0.6))]
    engine = Levels(0.5, 0.5)
    whole, joined = (
        sound.score_recordings(engine, given),
        sound.join_scored([sound.score_recordings(engine, given[:1]), sound.score_recordings(engine, given[1:])]),
    )
    assert (whole.stored == joined.stored).all()
    assert (whole.truth.recording == joined.truth.recording).all()
    assert whole.recordings == joined.recordings
    assert whole.truth.minutes == pytest.approx(joined.truth.minutes)
