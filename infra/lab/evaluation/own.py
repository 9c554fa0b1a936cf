"""A user's own recordings: reading them, and operating points set for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation import calibration, recordings, report
from infra.lab.evaluation.calibration import Calibration, Rule
from infra.lab.evaluation.metrics import false_events
from infra.lab.evaluation.recordings import Recording, Skipped
from infra.lab.evaluation.report import Report
from infra.lab.evaluation.sound import Scored, join, score
from streams.models.manifest import Manifest
from streams.models.protocol import SoundEngine

#: Costs between which that is looked for which gives the wanted false events, and halvings of the interval.
COSTS: Final = (0.01, 1000.0)
HALVINGS: Final = 20


class Outcome(msgspec.Struct, frozen=True):
    """The model with other points, and what they change: before, after, and after on recordings not used for them."""

    manifest: Manifest
    report: Report


def read(manifest: Manifest, folder: Path, table: Path, labels: Path | None) -> tuple[list[Recording], list[Skipped]]:
    """Return the recordings that a CSV names and those that are left out; labels mean what `labels` says.

    Raises:
        BadRequest: a table cannot be read, or names tags that the model does not have.
    """
    return recordings.folder(folder, table, recordings.meanings(manifest.tags, labels))


def calibrate(
    engine: SoundEngine, recordings_: Sequence[Recording], skipped: Sequence[Skipped], false_per_minute: float | None
) -> Outcome:
    """Set points for recordings.

    Args:
        engine: The model.
        given: The recordings.
        skipped: Those that were left out before.
        false_per_minute: False events a minute that all tags together may have in them; None: as many as what they
            find is worth, see `calibration.Rule`.

    Raises:
        BadRequest: no recording is left, or points cannot be cross-checked: a half has no recording of any tag.
        EngineError: the model failed.
    """
    halves = [score(engine, half) for half in recordings.halves(recordings_)]
    whole = join(halves)
    chosen = _choose(whole, false_per_minute)
    crossed = [
        half.reported_at(_choose(other, false_per_minute).points)
        for half, other in zip(halves, reversed(halves), strict=True)
    ]
    manifest = calibration.calibrated(engine.manifest, chosen)
    return Outcome(
        manifest,
        Report(
            model=manifest.model_id,
            lines=(
                report.line("points as they were", whole, whole.reported),
                report.line("new points", whole, whole.reported_at(chosen.points)),
                report.line("new points, cross-checked", whole, np.concatenate(crossed)),
            ),
            tags=report.tag_lines(manifest.tags, whole.reported_at(chosen.points), whole.truth),
            figures={},
            skipped=(*skipped, *whole.skipped),
        ),
    )


def _choose(scored: Scored, false_per_minute: float | None) -> Calibration:
    evidence, floor = calibration.evidence(scored), np.array(scored.manifest.points)
    if false_per_minute is None:
        return calibration.choose(evidence, floor)
    low, high = COSTS
    for _ in range(HALVINGS):
        cost = math.sqrt(low * high)
        at = calibration.choose(evidence, floor, Rule(cost=cost)).points
        if false_events(scored.reported_at(at), scored.truth).sum() > false_per_minute * scored.truth.minutes:
            low = cost
        else:
            high = cost
    return calibration.choose(evidence, floor, Rule(cost=high))
