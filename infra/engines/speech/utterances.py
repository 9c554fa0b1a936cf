"""Cuts a recording in pauses into utterances: stretches of speech that a recogniser takes whole."""

from collections.abc import Iterator
from typing import Final

import msgspec

from streams.models.protocol import Floats
from streams.voice import activity
from streams.voice.speech_segments import RATE, Hysteresis, SpeechSegment

#: Silence kept on both sides of an utterance.
MARGIN_S: Final = 0.15


class Utterance(msgspec.Struct, frozen=True):
    """A stretch of a recording, in seconds from its beginning, with its parts that have speech."""

    start_s: float
    end_s: float
    speech: tuple[SpeechSegment, ...]

    def cut(self, samples: Floats) -> Floats:
        """Return the utterance's part of a recording, float32[n] at 16 kHz."""
        return samples[round(self.start_s * RATE) : round(self.end_s * RATE)]


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
