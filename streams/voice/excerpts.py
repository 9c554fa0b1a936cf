"""What is heard of each speaker of a recording to know the voice: the longest turns, as much as tells enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from streams.models.protocol import Floats
from streams.voice.activity import RATE
from streams.voice.diarization import SpeakerTurn

#: More tells no more of a voice.
MAX_EXCERPT_S: Final = 30.0
#: Only those who speak most are heard: 61 MB of samples.
MAX_SPEAKERS: Final = 32


def excerpts(turns: Sequence[SpeakerTurn], cut: Callable[[int, int], Floats]) -> list[Floats]:
    """Return of each speaker, in order of number, samples at 16 kHz: none of those who speak least, if they are many.

    `cut` returns samples [first, end) of the recording.
    """
    of = defaultdict[int, list[SpeakerTurn]](list)
    for turn in turns:
        of[turn.speaker].append(turn)
    most = sorted(of, key=lambda speaker: -sum(map(_length, of[speaker])))[:MAX_SPEAKERS]
    return [_excerpt(of[speaker] if speaker in most else [], cut) for speaker in sorted(of)]


def _excerpt(turns: Sequence[SpeakerTurn], cut: Callable[[int, int], Floats]) -> Floats:
    pieces, left = [np.empty(0, np.float32)], round(MAX_EXCERPT_S * RATE)
    for turn in sorted(turns, key=_length, reverse=True):
        first = round(turn.start_s * RATE)
        end = min(round(turn.end_s * RATE), first + left)
        pieces.append(cut(first, end))
        left -= end - first
        if not left:
            break
    return np.concatenate(pieces)


def _length(turn: SpeakerTurn) -> float:
    return turn.end_s - turn.start_s
