"""Cuts a recording in pauses into utterances, which a recogniser takes whole, and the pieces that Whisper gets."""

from collections.abc import Iterator
from typing import Final

import msgspec

from infra.engines.speech.transcripts import Word
from infra.engines.speech.worker_protocol import Task
from streams.models.protocol import Floats
from streams.voice import activity
from streams.voice.speech_segments import RATE, Hysteresis, SpeechSegment

#: Silence kept on both sides of an utterance.
MARGIN_S: Final = 0.15
#: The longest utterance for Whisper; with the silence around it, it fits the 30 s of the model.
UTTERANCE_S: Final = 28.0


class Utterance(msgspec.Struct, frozen=True):
    """A stretch of a recording, in seconds from its beginning, with its parts that have speech."""

    start_s: float
    end_s: float
    speech: tuple[SpeechSegment, ...]

    def cut(self, samples: Floats) -> Floats:
        """Return the utterance's part of a recording, float32[n] at 16 kHz."""
        return samples[round(self.start_s * RATE) : round(self.end_s * RATE)]


class Piece(msgspec.Struct, frozen=True):
    """An utterance to transcribe or translate."""

    utterance: Utterance
    #: float32[n] at 16 kHz.
    samples: Floats
    #: A language code of the model; None to detect it.
    language: str | None = None
    #: The language of the recording; for a short piece it overrides the detected language.
    likely: str | None = None
    task: Task = "transcribe"
    #: Tokens from `Tokens.hints`.
    hints: tuple[int, ...] = ()


class PieceText(msgspec.Struct, frozen=True):
    """The words of a piece: none if they would be invented; for a translation one word with all of the text."""

    language: str
    words: tuple[Word, ...] = ()


def utterances(samples: Floats, longest_s: float) -> Iterator[Utterance]:
    """Yield the utterances of float32[n] at 16 kHz, each at most `longest_s` plus the silence around it.

    Raises:
        EngineError: voice activity detection failed.
    """
    length_s = len(samples) / RATE
    settings = Hysteresis(max_speech_s=longest_s)
    begun, speech = -1.0, list[SpeechSegment]()
    for segment in activity.bundled_detector().segments([samples], settings):
        if speech and segment.end_s - begun <= longest_s:
            speech.append(segment)
            continue
        ended = 0.0
        if speech:
            ended = speech[-1].end_s
            yield Utterance(begun, min(ended + MARGIN_S, max(ended, segment.start_s)), tuple(speech))
        begun, speech = max(segment.start_s - MARGIN_S, ended), [segment]
    if speech:
        yield Utterance(begun, min(length_s, speech[-1].end_s + MARGIN_S), tuple(speech))
