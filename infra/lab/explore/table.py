"""Tags of a recording in the order of how surely they were heard."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from infra.lab.explore.hearing import Heard
from topics.errors import BadRequest
from topics.scores import probability, threshold

#: From the strictest to the laxest.
SENSITIVITIES: Final = (2, 1, 0, -1, -2)


class Line(msgspec.Struct, frozen=True):
    """A tag in a recording."""

    tag: str
    #: Share of the windows in which it is reported at the sensitivity that was asked for.
    share: float
    #: Highest probability of a window, at sensitivity 0.
    peak: float
    #: The strictest sensitivity that reports it at all; None when none does.
    reported_at: int | None


def choose(hearing: Heard, top: int, names: Sequence[str] = ()) -> list[int]:
    """Return columns of tags: those named, or the `top` ones by their highest and then their mean score.

    Raises:
        BadRequest: the model has no such tag; the message names close ones.
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


def lines(hearing: Heard, columns: Sequence[int], sensitivity: int) -> list[Line]:
    """Return what there is to say of each tag, in the order given."""
    return [_line(hearing, column, sensitivity) for column in columns]


def _line(hearing: Heard, column: int, sensitivity: int) -> Line:
    stored = hearing.stored[:, column]
    peak = int(stored.max())
    return Line(
        tag=hearing.manifest.tags[column].name,
        share=float((stored >= threshold(sensitivity)).mean()),
        peak=probability(peak),
        reported_at=next((step for step in SENSITIVITIES if peak >= threshold(step)), None),
    )
