"""Summaries of tags in a section of a recording, highest scores first."""

import difflib
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from infra.lab.explore.section import AnalysedSection
from topics.errors import BadRequest
from topics.scores import probability, threshold

#: From the strictest to the laxest.
SENSITIVITIES: Final = (2, 1, 0, -1, -2)


class TagSummary(msgspec.Struct, frozen=True):
    tag: str
    #: Share of windows that report it at the chosen sensitivity.
    share: float
    #: Highest probability of a window, at sensitivity 0.
    peak: float
    #: The strictest sensitivity that reports it; None if none does.
    reported_at: int | None


def choose_columns(hearing: AnalysedSection, top: int, names: Sequence[str] = ()) -> list[int]:
    """Return the columns of the tags in `names`, or of the `top` tags by highest and then mean score.

    Raises:
        BadRequest: The model lacks such a tag; the message suggests similar ones.
    """
    tags = [tag.name for tag in hearing.manifest.tags]
    for name in names:
        if name not in tags:
            close = difflib.get_close_matches(name, tags)
            raise BadRequest(
                f"{hearing.manifest.name} has no tag {name}" + (f"; close: {', '.join(close)}" if close else "")
            )
    if names:
        return [tags.index(name) for name in names]
    order = np.lexsort((hearing.stored.mean(axis=0), hearing.stored.max(axis=0)))
    return [int(column) for column in order[::-1][:top]]


def tag_summary(hearing: AnalysedSection, column: int, sensitivity: int) -> TagSummary:
    stored = hearing.stored[:, column]
    peak = int(stored.max())
    return TagSummary(
        tag=hearing.manifest.tags[column].name,
        share=float((stored >= threshold(sensitivity)).mean()),
        peak=probability(peak),
        reported_at=next((step for step in SENSITIVITIES if peak >= threshold(step)), None),
    )
