"""A lesson: learns the heads of a sound from the passages that a project marked."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from infra.teaching import background, tags
from infra.teaching.background import CONTEXTS
from infra.teaching.heads import EmbeddedWindows
from infra.teaching.negatives import gather
from streams.models.manifest import Manifest
from streams.models.own_sounds import dequantise
from streams.models.protocol import Floats
from topics.errors import BadRequest
from topics.ports.own_sounds import LearntFigures, Mark

#: False reports a minute of busy material that the operating points are set for.
FALSE_PER_MINUTE: Final = 0.3
#: Passages are alike from this cosine on, after the mean of the background is subtracted. Ten takes of a steady sound
#: reach at most 0.95; the same recording reaches 1.
ALIKE: Final = 0.99


class Lesson(msgspec.Struct, frozen=True):
    """The heads of a sound, as in `topics.hearing.OwnSound`, and their figures."""

    stream: bytes
    recording: bytes
    figures: dict[str, LearntFigures]


def learn(marks: Sequence[Mark], manifest: Manifest) -> Lesson:
    """Learn a sound from marks on the embeddings of a manifest's second model.

    A context of a stream has two seconds, a context of a recording five. A head learnt from one kind finds the sound in
    the other just as well, so both kinds are examples for both heads. Each has its own operating point.

    Raises:
        BadRequest: there are too few marks of the sound, or all are alike; the message says what to do.
    """
    dimension = 0 if manifest.second is None else manifest.second.dimension
    ordered = sorted(marks, key=lambda mark: (mark.source, mark.start_ms))
    examples, others = (
        [_embeddings(mark, dimension) for mark in ordered if mark.right is right] for right in (True, False)
    )
    if len(examples) < tags.FEWEST:
        raise BadRequest(
            f"{len(examples)} passages are marked as the sound, and {tags.FEWEST} are needed: mark more of them"
        )
    learnt = {}
    for kind in CONTEXTS:
        against = gather(manifest, others, kind)
        if kind == CONTEXTS[0]:
            _check_variety(examples, background.read(manifest, kind))
        learnt[kind] = tags.learn_tag(examples, against, FALSE_PER_MINUTE)
    heads = {kind: one.head.astype("<f4").tobytes() for kind, one in learnt.items()}
    figures = {
        f"{kind}s": LearntFigures(one.figures.clips, one.figures.recall, one.figures.false_on_background, one.left_out)
        for kind, one in learnt.items()
    }
    return Lesson(heads["stream"], heads["recording"], figures)


def _embeddings(mark: Mark, dimension: int) -> EmbeddedWindows:
    embeddings = dequantise(np.frombuffer(mark.embeddings, np.int8).reshape(-1, dimension))
    return EmbeddedWindows(embeddings, np.zeros(len(embeddings), np.float32))


def _check_variety(examples: Sequence[EmbeddedWindows], others: background.Background | None) -> None:
    mean: Floats | np.float32 = np.float32(0) if others is None else others.embeddings.mean(axis=0)
    means = np.stack([one.embeddings.mean(axis=0) for one in examples]) - mean
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    if (means @ means[0] >= ALIKE).all():
        raise BadRequest(
            f"the {len(examples)} passages are all alike, so other takes of the sound would not be found: "
            "mark it at other times, from other distances, with other sounds beside it"
        )
