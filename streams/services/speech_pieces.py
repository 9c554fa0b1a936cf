"""Cuts speech at pauses into pieces for a speech engine, each as long as allowed."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from streams.voice.speech_segments import Hysteresis, SpeechSegment

#: Kept on both sides of speech, so that the first and last words are whole.
PAD_S: Final = 0.1
#: The longest pause inside a piece: some engines hear words in silence.
MAX_PAUSE_S: Final = 5.0


class SpeechPiece(msgspec.Struct, frozen=True):
    """A stretch of a recording, in milliseconds from its beginning."""

    start_ms: int
    end_ms: int


def detector_settings(longest_s: float) -> Hysteresis:
    """Return detector settings for segments of at most `longest_s`, padding included."""
    return Hysteresis(pad_s=PAD_S, max_speech_s=longest_s - 2 * PAD_S)


def cut_speech(segments: Iterable[SpeechSegment], longest_s: float) -> Iterator[SpeechPiece]:
    """Join segments into pieces of at most `longest_s`; yield each in order of time as soon as it is complete."""
    start = end = None
    for segment in segments:
        if start is None or end is None:
            start, end = segment.start_s, segment.end_s
        elif segment.end_s - start <= longest_s and segment.start_s - end <= MAX_PAUSE_S:
            end = segment.end_s
        else:
            yield _piece(start, end)
            start, end = segment.start_s, segment.end_s
    if start is not None and end is not None:
        yield _piece(start, end)


def _piece(start_s: float, end_s: float) -> SpeechPiece:
    # Round down, so that no piece ends after the audio; the addend compensates for the product's rounding error.
    return SpeechPiece(math.floor(start_s * 1000), math.floor(end_s * 1000 + 1e-6))
