"""Who of the registered speakers a voice is: the nearest by cosine, or nobody (an open set).

A speaker is the mean direction of their samples. Vectors of different models are never compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from streams.clients.embeddings import VoiceEmbedding
from streams.speakers.roster import Enrolled

#: Stands for the cosine with a speaker where none can be compared.
NO_SCORE: Final = -1.0


class Match(msgspec.Struct, frozen=True):
    """The registered speaker that a voice is taken for, None for nobody."""

    name: str | None
    #: Cosine with the nearest registered speaker, matched or not; `NO_SCORE` where none can be compared.
    score: float


def match(voice: VoiceEmbedding, enrolled: Iterable[Enrolled], threshold: float) -> Match:
    """Return the nearest speaker from a cosine of `threshold` on; of equally near ones the first."""
    best = Match(None, NO_SCORE)
    for speaker in enrolled:
        known = [
            sample.vector
            for sample in speaker.samples
            if sample.model == voice.model and len(sample.vector) == len(voice.vector)
        ]
        mean = np.sum(known, axis=0) if known else np.zeros(1)
        length = float(np.linalg.norm(mean))
        if length == 0:
            continue
        score = float(np.clip(mean @ voice.vector / length, -1.0, 1.0))
        if best.name is None or score > best.score:
            best = Match(speaker.name, score)
    return best if best.score >= threshold else Match(None, best.score)


def named(matches: Sequence[Match]) -> list[str]:
    """Return the names of a recording's speakers in order of first appearance, nobody being `Unknown 0`, `Unknown 1`, …

    Two of them may be the same registered speaker: somebody whose voice changed is told apart, and recognised twice.
    """
    strangers = 0
    names = []
    for found in matches:
        names.append(f"Unknown {strangers}" if found.name is None else found.name)
        strangers += found.name is None
    return names
