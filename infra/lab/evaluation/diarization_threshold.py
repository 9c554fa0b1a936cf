"""Chooses the diarization threshold in `infra/models/speaker_pair/manifest.json`, on readers held out of the folds.

    python -m infra.lab.evaluation.diarization_threshold --data DATA --folds DIR [--write MODEL]

DIR holds a folder per fold with a model and `speakers.txt`, the held-out readers, as written by
`infra.lab.training.speaker`. Prints the error rates at each threshold over all folds, the threshold in the middle of
the flat part of their sum, and for each fold the rates at the threshold chosen by the other folds. The few meetings
count in every fold, so their own errors influenced the threshold of their rate. `--write` stores the threshold and the
rates of all held-out folds in the manifest of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation import utterances
from infra.lab.evaluation.channels import through_channel
from infra.lab.evaluation.conversations import Conversation, make_conversations
from infra.lab.evaluation.diarization import COLLAR_S, DiarizationErrors, Summed, diarization_errors
from infra.lab.evaluation.meetings import meeting_errors, read_meetings
from infra.lab.script import parser, run
from infra.models import manifests
from streams.models.protocol import Floats
from streams.voice import loudness as levels
from streams.voice import speaker_manifest as manifest
from streams.voice.activity import bundled_detector
from streams.voice.diarization import DiarizationTurn, diarization_turns, embed_windows
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speaker_manifest import DiarizationSettings
from topics.errors import BadRequest

THRESHOLDS: Final = tuple(np.arange(0.5, 0.9, 0.02).round(2).tolist())
#: Those of the bundled models, with any threshold.
SETTINGS: Final = DiarizationSettings(window_s=1.6, hop_s=0.8, threshold=1.0)
CONVERSATIONS: Final = 12
#: Rate sums this close to the best count as equal.
FLAT: Final = 0.02


class Errors(Summed, frozen=True):
    """Errors by kind of material: conversations, conversations through channels, and meetings."""

    plain: DiarizationErrors = DiarizationErrors()
    collared: DiarizationErrors = DiarizationErrors()
    channel: DiarizationErrors = DiarizationErrors()
    meetings: DiarizationErrors = DiarizationErrors()

    @property
    def total(self) -> float:
        """The sum of rates that the threshold minimises."""
        return self.plain.rate + self.channel.rate + self.meetings.rate


#: By threshold.
Curve = Mapping[float, Errors]


def error_curve(directory: Path, data: Path, seed: int) -> Curve:
    """Return the errors of a fold's model at each threshold, on conversations of the readers in its `speakers.txt`.

    Recordings are normalised to the level of jobs.
    """
    engine, detector = OnnxSpeakerEngine(directory), bundled_detector()
    readers = utterances.read(data / "speech", (directory / "speakers.txt").read_text().split())
    totals = dict.fromkeys(THRESHOLDS, Errors())

    def add(samples: Floats, errors: Callable[[list[DiarizationTurn]], Errors]) -> None:
        windows, vectors = embed_windows([levels.levelled(samples)], engine, detector, SETTINGS)
        for threshold in THRESHOLDS:
            turns = diarization_turns(windows, vectors, msgspec.structs.replace(SETTINGS, threshold=threshold))
            totals[threshold] += errors(turns)

    rng = np.random.default_rng(seed)
    for talk in make_conversations(readers, detector, CONVERSATIONS, seed):
        add(talk.samples, partial(_talk_errors, talk))
        heard = through_channel(talk.samples, rng)
        add(heard, lambda turns, talk=talk: Errors(channel=diarization_errors(talk.turns, turns)))  # type: ignore[misc]
    for meeting in read_meetings(data / "meeting"):
        add(meeting.samples, lambda turns, meeting=meeting: Errors(meetings=meeting_errors(meeting, turns)))  # type: ignore[misc]
    return totals


def _talk_errors(talk: Conversation, turns: list[DiarizationTurn]) -> Errors:
    return Errors(plain=diarization_errors(talk.turns, turns), collared=diarization_errors(talk.turns, turns, COLLAR_S))


def merge_curves(curves: Sequence[Curve]) -> Curve:
    """Merge the curves of several folds."""
    return {threshold: sum((fold[threshold] for fold in curves), Errors()) for threshold in curves[0]}


def choose_threshold(curve: Curve) -> float:
    """Return the middle of the thresholds whose sum of rates is at most FLAT above the best."""
    best = min(errors.total for errors in curve.values())
    flat = [threshold for threshold, errors in curve.items() if errors.total <= best + FLAT]
    return min(curve, key=lambda threshold: abs(threshold - (flat[0] + flat[-1]) / 2))


def main() -> None:
    options_parser = parser(__doc__, "--data", "--folds")
    options_parser.add_argument(
        "--write", type=Path, metavar="MODEL", help="directory of the model that the folds speak for"
    )
    options = options_parser.parse_args()
    folders = sorted(path.parent for path in options.folds.glob("*/speakers.txt"))
    curves = [error_curve(folder, options.data, seed) for seed, folder in enumerate(folders)]
    if len(curves) < 2:
        raise BadRequest(f"{options.folds}: has {len(curves)} folds, and at least two are needed")
    whole = merge_curves(curves)
    for threshold, errors in whole.items():
        print(f"{threshold:.2f}  {_line(errors)}")
    print(f"chosen {choose_threshold(whole):.2f}")
    held_out = Errors()
    for number, fold in enumerate(curves):
        threshold = choose_threshold(merge_curves([other for other in curves if other is not fold]))
        held_out += fold[threshold]
        print(f"{folders[number].name} at {threshold:.2f}, chosen by the others: {_line(fold[threshold])}")
    print(f"held out: {_line(held_out)}")
    if options.write is not None:
        _write(options.write, choose_threshold(whole), held_out)


def _line(errors: Errors) -> str:
    plain = errors.plain
    parts = [value / max(plain.speech_s, 1e-9) for value in (plain.missed_s, plain.false_alarm_s, plain.confusion_s)]
    return (
        f"{plain.rate:6.1%} (missed {parts[0]:.1%} false alarm {parts[1]:.1%} confusion {parts[2]:.1%})"
        f"  collar {errors.collared.rate:6.1%}  channel {errors.channel.rate:6.1%}"
        f"  meetings {errors.meetings.rate:6.1%}"
    )


def _write(directory: Path, threshold: float, errors: Errors) -> None:
    model = manifest.read(directory)
    rates = {
        "diarization_error": errors.plain,
        "diarization_error_collar": errors.collared,
        "diarization_error_channel": errors.channel,
        "diarization_error_meetings": errors.meetings,
    }
    figures = model.figures | {name: round(kind.rate, 4) for name, kind in rates.items() if kind.speech_s}
    settings = model.diarization and msgspec.structs.replace(model.diarization, threshold=threshold)
    manifests.write(directory, msgspec.structs.replace(model, diarization=settings, figures=figures))


if __name__ == "__main__":
    run(main)
