"""Reads a user's recordings, and sets operating points for them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation import calibration, recordings, report
from infra.lab.evaluation.calibration import Calibration, CalibrationRule
from infra.lab.evaluation.metrics import false_events
from infra.lab.evaluation.recordings import Recording, SkippedRecording
from infra.lab.evaluation.report import EvaluationReport
from infra.lab.evaluation.sound import ScoredRecordings, join_scored, score_recordings
from streams.models.manifest import Manifest
from streams.models.protocol import SoundEngine

#: Bounds of the search for the cost that gives the wanted number of false events, and its steps.
COSTS: Final = (0.01, 1000.0)
HALVINGS: Final = 20


class CalibrationOutcome(msgspec.Struct, frozen=True):
    """The model with new points, and a report: at the old points, at the new ones, and cross-checked."""

    manifest: Manifest
    report: EvaluationReport


def read(
    manifest: Manifest, folder: Path, table: Path, labels: Path | None
) -> tuple[list[Recording], list[SkippedRecording]]:
    """Return the recordings that a CSV names and the skipped ones; `labels` is a table of label meanings.

    Raises:
        BadRequest: A table cannot be read, or names tags that the model lacks.
    """
    return recordings.read_folder(folder, table, recordings.label_meanings(manifest.tags, labels))


def calibrate(
    engine: SoundEngine,
    recordings_: Sequence[Recording],
    skipped: Sequence[SkippedRecording],
    false_per_minute: float | None,
) -> CalibrationOutcome:
    """Set operating points for recordings.

    `false_per_minute` limits the false events a minute of all tags together; None uses the default cost of
    `calibration.CalibrationRule`. `skipped` lists recordings already left out.

    Raises:
        BadRequest: No recording is left, or points cannot be cross-checked because a half has no recording of any tag.
        EngineError: The model failed.
    """
    halves = [score_recordings(engine, half) for half in recordings.halves(recordings_)]
    whole = join_scored(halves)
    chosen = _choose_calibration(whole, false_per_minute)
    crossed = [
        half.reported_at(_choose_calibration(other, false_per_minute).points)
        for half, other in zip(halves, reversed(halves), strict=True)
    ]
    of_streams = None
    if engine.second is not None:
        of_streams = _choose_calibration(score_recordings(engine, recordings_, recording=False), false_per_minute)
    manifest = calibration.with_points(engine.manifest, chosen, of_streams)
    return CalibrationOutcome(
        manifest,
        EvaluationReport(
            model=manifest.model_id,
            lines=(
                report.material_figures("points as they were", whole, whole.reported),
                report.material_figures("new points", whole, whole.reported_at(chosen.points)),
                report.material_figures("new points, cross-checked", whole, np.concatenate(crossed)),
            ),
            tags=report.tag_figures(manifest.tags, whole.reported_at(chosen.points), whole.truth),
            figures={},
            skipped=(*skipped, *whole.skipped),
        ),
    )


def _choose_calibration(scored: ScoredRecordings, false_per_minute: float | None) -> Calibration:
    evidence, floor = calibration.gather_evidence(scored), np.array(scored.manifest.points(scored.recording))
    if false_per_minute is None:
        return calibration.choose_points(evidence, floor)
    low, high = COSTS
    for _ in range(HALVINGS):
        cost = math.sqrt(low * high)
        at = calibration.choose_points(evidence, floor, CalibrationRule(cost=cost)).points
        if false_events(scored.reported_at(at), scored.truth).sum() > false_per_minute * scored.truth.minutes:
            low = cost
        else:
            high = cost
    return calibration.choose_points(evidence, floor, CalibrationRule(cost=high))
