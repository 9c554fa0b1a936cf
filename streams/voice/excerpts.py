"""Excerpts of a recording's speakers for recognising their voices: the longest turns, up to a total length."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from streams.models.protocol import Floats
from streams.voice.diarization import DiarizationTurn
from streams.voice.speech_segments import RATE

#: Longer excerpts do not improve recognition.
MAX_EXCERPT_S: Final = 30.0
#: Only the speakers with most speech get excerpts: at most 61 MB of samples.
MAX_SPEAKERS: Final = 32


def excerpts(turns: Sequence[DiarizationTurn], cut: Callable[[int, int], Floats]) -> list[Floats]:
    """Return an excerpt of each speaker in order of number, float32[n] at 16 kHz.

    `cut` returns samples [first, end) of the recording. Beyond `MAX_SPEAKERS`, the speakers with least speech get
    empty excerpts.
    """
    by_speaker = defaultdict[int, list[DiarizationTurn]](list)
    for turn in turns:
        by_speaker[turn.speaker].append(turn)
    most = sorted(by_speaker, key=lambda speaker: -sum(map(_length, by_speaker[speaker])))[:MAX_SPEAKERS]
    return [_excerpt(by_speaker[speaker] if speaker in most else [], cut) for speaker in sorted(by_speaker)]


def _excerpt(turns: Sequence[DiarizationTurn], cut: Callable[[int, int], Floats]) -> Floats:
    pieces, remaining = [np.empty(0, np.float32)], round(MAX_EXCERPT_S * RATE)
    for turn in sorted(turns, key=_length, reverse=True):
        first = round(turn.start_s * RATE)
        end = min(round(turn.end_s * RATE), first + remaining)
        pieces.append(cut(first, end))
        remaining -= end - first
        if not remaining:
            break
    return np.concatenate(pieces)


def _length(turn: DiarizationTurn) -> float:
    return turn.end_s - turn.start_s
