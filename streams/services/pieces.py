"""Speech in pieces that an engine takes: cut at pauses, each as long as it may be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from streams.voice.activity import Hysteresis, SpeechSegment

#: Kept around speech, so that first and last sounds of words are whole.
PAD_S: Final = 0.1
#: Longer pauses are never inside a piece: some engines hear words in silence.
LONGEST_PAUSE_S: Final = 5.0


class Piece(msgspec.Struct, frozen=True):
    """A stretch of a recording, in milliseconds."""

    start_ms: int
    end_ms: int


def activity(longest_s: float) -> Hysteresis:
    """Return how speech is found that `pieces` cuts: none of it longer than a piece, pads included."""
    return Hysteresis(pad_s=PAD_S, max_speech_s=longest_s - 2 * PAD_S)


def pieces(segments: Iterable[SpeechSegment], longest_s: float) -> Iterator[Piece]:
    """Yield pieces of at most `longest_s` that are made of whole segments, in order of time, as they are complete."""
    start = end = None
    for segment in segments:
        if start is None or end is None:
            start, end = segment.start_s, segment.end_s
        elif segment.end_s - start <= longest_s and segment.start_s - end <= LONGEST_PAUSE_S:
            end = segment.end_s
        else:
            yield _piece(start, end)
            start, end = segment.start_s, segment.end_s
    if start is not None and end is not None:
        yield _piece(start, end)


def _piece(start_s: float, end_s: float) -> Piece:
    return Piece(math.floor(start_s * 1000), math.ceil(end_s * 1000))
