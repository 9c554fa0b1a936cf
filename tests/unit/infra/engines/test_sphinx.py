"""The recogniser itself: silence says nothing, and speech says the same whenever it is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from infra.engines import sphinx
from tests.audio import encoded, sine
from tests.recordings import SPEECH

pytestmark = pytest.mark.slow

#: Two seconds of one reader.
READER = SPEECH / "403-126855-0000.ogg"


@pytest.fixture(scope="module")
def recogniser() -> sphinx.Recogniser:
    return sphinx.Recogniser()


def test_a_tone_and_silence_hold_no_words(recogniser: sphinx.Recogniser, tmp_path: Path) -> None:
    tone = 0.3 * sine(2.0, rate=8000)
    (tmp_path / "tone.wav").write_bytes(encoded(np.concatenate((tone, np.zeros(8000))), 8000))
    heard = recogniser.transcribe(tmp_path / "tone.wav")
    assert (heard.duration, heard.words) == (3.0, ())


def test_words_lie_in_the_speech_and_do_not_depend_on_what_was_heard_before(
    recogniser: sphinx.Recogniser, tmp_path: Path
) -> None:
    first = recogniser.transcribe(READER)
    assert len(first.words) >= 3
    assert all(0 <= word.start < word.end <= first.duration for word in first.words)
    assert [word.start for word in first.words] == sorted(word.start for word in first.words)
    assert not any(set("<>[]()+") & set(word.text) for word in first.words)
    assert all(0 <= word.probability <= 1 for word in first.words)
    list(recogniser.words(np.random.default_rng(1).normal(0, 0.1, 8000).astype(np.float32)))
    assert recogniser.transcribe(READER) == first
