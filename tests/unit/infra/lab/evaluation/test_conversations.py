"""Synthetic conversations: what is said to be true about them is, and diarization is judged by it."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest

from infra import models
from infra.lab.evaluation import utterances
from infra.lab.evaluation.activity import evaluate_activity
from infra.lab.evaluation.conversations import Conversation, make_conversations
from infra.lab.evaluation.diarization import evaluate_diarization, summarize_diarization
from infra.lab.evaluation.labels import LABELS
from infra.lab.evaluation.recordings import Recording, Span
from infra.lab.evaluation.utterances import Utterance
from streams.audio.decode import DecodedAudio
from streams.voice.activity import bundled_detector
from streams.voice.diarization import DiarizationTurn
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speech_segments import RATE
from tests.recordings import SPEECH
from tests.unit.streams.voice.tones import PITCHES, Ear, Tones, talk

pytestmark = pytest.mark.slow

#: Each reads for 12 s with a pause in the middle, at the level at which turns are heard.
READERS = [
    Utterance(f"{number}", "F", 0.3 * talk((number, 6), (None, 0.5), (number, 5.5))) for number in range(len(PITCHES))
]


class Keen(Ear):
    """Hears quiet speech, too."""

    least = 0.01


def held(count: int, seed: int = 0) -> list[Conversation]:
    return list(make_conversations(READERS, Keen(), count, seed))


def test_the_same_seed_gives_the_same_conversations() -> None:
    assert held(2)[1].turns == held(2)[1].turns
    assert np.array_equal(held(1)[0].samples, held(2)[0].samples)
    assert held(1, seed=1)[0].turns != held(1)[0].turns


def test_two_three_and_four_take_turns() -> None:
    for made, count in zip(held(6), [2, 3, 4, 2, 3, 4], strict=True):
        assert len({turn.speaker for turn in made.turns}) == count
        assert all(one.speaker != other.speaker for one, other in itertools.pairwise(made.spans))
        assert all(1.9 < span.end_s - span.start_s < 6.1 for span in made.spans)
        assert made.spans[-1].end_s < len(made.samples) / RATE
        for turn in made.turns:
            assert any(span.start_s <= turn.start_s and turn.end_s <= span.end_s + 1e-9 for span in made.spans)


def test_turns_are_where_the_speakers_are_heard() -> None:
    made = held(1)[0]
    voices: dict[int, int] = {}
    for turn in made.turns:
        if turn.end_s - turn.start_s > 1:
            middle = round((turn.start_s + turn.end_s) / 2 * RATE)
            pitch = int(Tones().embed(made.samples[middle - RATE // 4 : middle + RATE // 4]).argmax())
            assert voices.setdefault(turn.speaker, pitch) == pitch
    assert len(set(voices.values())) == 2


def test_a_reader_with_many_utterances_is_one_speaker() -> None:
    halves = [msgspec.structs.replace(r, samples=h) for r in READERS for h in np.array_split(r.samples, 2)]
    assert [made.turns for made in make_conversations(halves, Keen(), 3)] == [made.turns for made in held(3)]


def test_too_few_readers_are_refused() -> None:
    with pytest.raises(ValueError, match="3 speakers with 10 s or more, expected 4"):
        next(make_conversations([*READERS[:3], Utterance("short", "M", talk((3, 2)))], Keen(), 1))


def test_pure_tones_are_told_apart() -> None:
    figures = evaluate_diarization(Tones(), Keen(), held(3))
    assert figures.conversations == 3
    assert figures.counted == 1
    assert figures.error_collar < 0.05
    assert figures.error == pytest.approx(figures.missed + figures.false_alarm + figures.confusion)
    assert figures.error < 0.12


def test_summary_weighs_by_speech() -> None:
    long, short = [DiarizationTurn(0, 9, 0)], [DiarizationTurn(0, 1, 0)]
    talks = [Conversation(np.zeros(1, np.float32), tuple(turns), tuple(turns)) for turns in (long, short)]
    figures = summarize_diarization([(talks[0], long), (talks[1], [])])
    assert (figures.error, figures.counted) == pytest.approx((0.1, 0.5))
    with pytest.raises(ValueError, match="one conversation or more"):
        summarize_diarization([])


def recording(label: str, samples: float, rate: int = RATE) -> Recording:
    pcm = DecodedAudio(rate, np.full(2 * rate, samples, np.float32))
    return Recording(name=label, label=label, spans=(Span(LABELS[label]),), audio=pcm, source=label)


def test_activity_is_a_share_of_time() -> None:
    figures = evaluate_activity(
        Ear(),
        [recording("speech", 0.5), recording("rain", 0.5, 8000), recording("rain", 0.0), recording("laughing", 0.5)],
    )
    assert (figures.speech, figures.sounds) == pytest.approx((1.0, 0.5), abs=0.02)
    assert (figures.speech_s, figures.sounds_s) == (2, 4)
    with pytest.raises(ValueError, match="on speech and on other sounds"):
        evaluate_activity(Ear(), [recording("rain", 0.0)])


def test_the_bundled_model_tells_readers_apart() -> None:
    """Readers that it was trained on, so this says that it works, not how well."""
    names = ["103", "1034", "1040", "1069", "1081", "1098"]
    readers = utterances.read(SPEECH, names)
    engine = OnnxSpeakerEngine(models.directory(models.SPEAKERS))
    assert (
        evaluate_diarization(
            engine, bundled_detector(), make_conversations(readers, bundled_detector(), 2)
        ).error_collar
        < 0.25
    )
