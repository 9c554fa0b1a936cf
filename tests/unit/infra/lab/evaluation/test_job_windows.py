"""Short sounds in other sounds, and windows of jobs made of the scores of sessions."""

from __future__ import annotations

import numpy as np
import pytest

from infra.lab.evaluation import job_windows
from infra.lab.evaluation.job_windows import AGGREGATES, RATE
from infra.lab.evaluation.job_windows import job_windows as windows_of
from infra.lab.evaluation.labels import LABELS
from infra.lab.evaluation.recordings import Recording, Span
from infra.lab.evaluation.sound import score_recordings
from streams.audio.decode import DecodedAudio
from tests.unit.streams.audio.engines import Fingerprint


def clip(label: str, seed: int, seconds: float = 5.0) -> Recording:
    samples = np.random.default_rng(seed).standard_normal(round(seconds * RATE)).astype(np.float32)
    return Recording(label, label, (Span(LABELS[label]),), DecodedAudio(RATE, 0.01 * samples), label)


def test_a_short_sound_is_where_it_is_said_to_be() -> None:
    dog = clip("dog", 3).decode().samples.copy()
    dog[2 * RATE : 2 * RATE + RATE // 2] *= 20
    bark = Recording("dog", "dog", (Span(LABELS["dog"]),), DecodedAudio(RATE, dog), "dog")
    clips = [clip("rain", 1), clip("wind", 2), bark]
    (short,) = job_windows.short_events(clips)
    samples, event = short.decode().samples, short.spans[-1]
    assert len(samples) == job_windows.SECONDS * RATE
    assert event.meaning == LABELS["dog"]
    assert event.end - event.start == pytest.approx(job_windows.EVENT_S)
    levels = np.square(samples).reshape(-1, RATE // 10).mean(axis=1)
    assert event.start - 0.1 <= levels.argmax() / 10 <= event.end
    assert (job_windows.short_events(clips)[0].decode().samples == samples).all()


@pytest.mark.parametrize("seconds", [0.5, 2.0, 2.3, 5.0, 7.7])
def test_the_chosen_windows_are_those_of_jobs(seconds: float) -> None:
    scored = score_recordings(Fingerprint(), [clip("rain", 5, seconds)])
    on, truth = windows_of(scored, None)
    reported = [set(np.flatnonzero(row).tolist()) for row in scored.reported]
    assert len(on) == len(truth.recording) == max(1, len(reported) // 2)
    ends = [*range(2, 2 * len(on), 2), len(reported)]
    for number, (row, end) in enumerate(zip(on, ends, strict=True)):
        assert set(np.flatnonzero(row).tolist()) == set().union(*reported[2 * number : end])


def test_nothing_is_reported_of_a_tag_that_never_is() -> None:
    scored = score_recordings(Fingerprint(), [clip("rain", 5)])
    for aggregate in (*AGGREGATES.values(), None):
        on, truth = windows_of(scored, aggregate)
        assert on.shape == truth.true.shape == truth.allowed.shape
