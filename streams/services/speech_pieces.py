"""Cuts speech into pieces that a speech engine takes: at pauses, each piece as long as it may be."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from streams.voice.speech_segments import Hysteresis, SpeechSegment

#: Kept on both sides of speech, so that the first and last sounds of words are whole.
PAD_S: Final = 0.1
#: A piece has no longer pause inside it: some engines hear words in silence.
MAX_PAUSE_S: Final = 5.0


class SpeechPiece(msgspec.Struct, frozen=True):
    """A stretch of a recording, in milliseconds from its beginning."""

    start_ms: int
    end_ms: int


def detector_settings(longest_s: float) -> Hysteresis:
    """Return the settings that detect segments of at most `longest_s`, padding included."""
    return Hysteresis(pad_s=PAD_S, max_speech_s=longest_s - 2 * PAD_S)


def cut_speech(segments: Iterable[SpeechSegment], longest_s: float) -> Iterator[SpeechPiece]:
    """Join segments to pieces of at most `longest_s`, and yield each in order of time as soon as it is complete."""
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
    # Both are rounded down: no piece ends after the audio. What is added makes up for the error of the product.
    return SpeechPiece(math.floor(start_s * 1000), math.floor(end_s * 1000 + 1e-6))
