"""Matches a voice to the nearest registered speaker by cosine, or to nobody (open-set identification).

A speaker is the mean direction of the speaker's samples. Vectors of different models are never compared.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from streams.clients.embeddings import VoiceEmbedding
from streams.services.speaker_names import NO_SCORE, unknown_name
from streams.speakers.speaker_store import EnrolledSpeaker


class Match(msgspec.Struct, frozen=True):
    """The registered speaker of a voice; None for nobody."""

    name: str | None
    #: Cosine with the nearest registered speaker, even if below the threshold; `NO_SCORE` if none is comparable.
    score: float
    #: What people call the speaker.
    shown: str = ""


NO_MATCH = Match(None, NO_SCORE)


def match(voice: VoiceEmbedding, speakers: Iterable[EnrolledSpeaker], threshold: float) -> Match:
    """Return the speaker with the highest cosine of at least `threshold`; on a tie, the first."""
    best = NO_MATCH
    for speaker in speakers:
        vectors = [
            sample.vector
            for sample in speaker.samples
            if sample.model == voice.model and len(sample.vector) == len(voice.vector)
        ]
        mean = np.sum(vectors, axis=0) if vectors else np.zeros(1)
        length = float(np.linalg.norm(mean))
        if length == 0:
            continue
        score = float(np.clip(mean @ voice.vector / length, -1.0, 1.0))
        if best.name is None or score > best.score:
            best = Match(speaker.name, score, speaker.display_name or speaker.name)
    return best if best.score >= threshold else Match(None, best.score)


def names_of(matches: Sequence[Match], *, shown: bool = False) -> list[str]:
    """Return the names of a recording's speakers, or what people call them if `shown` is set.

    Those without a match are `Unknown 0`, `Unknown 1`, … in order.

    Two may have the same name: if a voice changes, diarization finds two speakers, and both match.
    """
    unknown = 0
    names = []
    for each in matches:
        names.append(unknown_name(unknown) if each.name is None else each.shown if shown else each.name)
        unknown += each.name is None
    return names
