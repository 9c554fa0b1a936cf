"""Recordings cut into utterances."""

from __future__ import annotations

import numpy as np
import pytest

from infra.engines.utterances import utterances
from streams.voice import activity
from streams.voice.speech_segments import SpeechSegment


def test_long_speech_is_cut_into_utterances_that_share_no_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [SpeechSegment(start, start + 8.0) for start in (0.1, 8.2, 16.3, 40.0)]

    class Activity:
        def segments(self, blocks: object, settings: object) -> list[SpeechSegment]:
            return segments

    monkeypatch.setattr(activity, "bundled_detector", Activity)
    samples = np.zeros(49 * 16000, np.float32)
    cut = list(utterances(samples, 20.0))
    assert [(one.start_s, one.end_s) for one in cut] == [
        (0.0, pytest.approx(16.3)),
        (pytest.approx(16.2), pytest.approx(24.45)),
        (39.85, 48.15),
    ]
    assert [part for one in cut for part in one.speech] == segments
    assert [len(one.cut(samples)) for one in cut] == [round(16000 * (one.end_s - one.start_s)) for one in cut]


def test_nothing_is_cut_from_silence() -> None:
    assert list(utterances(np.zeros(16000, np.float32), 20.0)) == []
