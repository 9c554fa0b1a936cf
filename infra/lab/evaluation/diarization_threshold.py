"""Chooses the threshold of diarization for a speaker-embedding model, on readers that its folds were not trained on.

    python -m infra.lab.evaluation.diarization_threshold --data DATA --folds DIR [--write MODEL]

DIR holds a folder for each fold with a model and `speakers.txt`, the readers left out, as `infra.lab.training.speaker`
writes them. Prints the error rate at each threshold over all folds, the threshold in the middle of the flat part, and
for each fold the rates at the threshold that the other folds choose. `--write` puts the threshold and the rates of all
held-out folds into the manifest of a model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation import manifest_files, utterances
from infra.lab.evaluation.conversations import make_conversations
from infra.lab.evaluation.diarization import COLLAR_S, DiarizationErrors, diarization_errors
from streams.voice import manifest
from streams.voice.activity import bundled_detector
from streams.voice.diarization import diarization_turns, embed_windows
from streams.voice.manifest import DiarizationSettings
from streams.voice.speaker_engine import OnnxSpeakerEngine
from topics.errors import EarshotError

THRESHOLDS: Final = tuple(np.arange(0.5, 1.0, 0.02).round(2).tolist())
CONVERSATIONS: Final = 30
#: Rates within this distance of the best count as equal.
FLAT: Final = 0.01

#: By threshold, the errors without and with a collar.
Curve = Mapping[float, tuple[DiarizationErrors, DiarizationErrors]]


def error_curve(directory: Path, speech: Path, settings: DiarizationSettings, seed: int) -> Curve:
    """Return the errors of a fold's model at each threshold, on conversations of the readers in its `speakers.txt`."""
    engine = OnnxSpeakerEngine(directory)
    readers = utterances.read(speech, (directory / "speakers.txt").read_text().split())
    totals = dict.fromkeys(THRESHOLDS, (DiarizationErrors(), DiarizationErrors()))
    for talk in make_conversations(readers, bundled_detector(), CONVERSATIONS, seed):
        windows, vectors = embed_windows([talk.samples], engine, bundled_detector(), settings)
        for threshold, (plain, collared) in totals.items():
            turns = diarization_turns(windows, vectors, msgspec.structs.replace(settings, threshold=threshold))
            totals[threshold] = (
                plain + diarization_errors(talk.turns, turns),
                collared + diarization_errors(talk.turns, turns, COLLAR_S),
            )
    return totals


def merge_curves(curves: Sequence[Curve]) -> Curve:
    """Return the curve of the conversations of several folds together."""
    return {
        threshold: (
            sum((fold[threshold][0] for fold in curves), DiarizationErrors()),
            sum((fold[threshold][1] for fold in curves), DiarizationErrors()),
        )
        for threshold in curves[0]
    }


def choose_threshold(curve: Curve) -> float:
    """Return the middle of the thresholds whose rate, without a collar, is at most FLAT above the best."""
    best = min(plain.rate for plain, _ in curve.values())
    flat = [threshold for threshold, (plain, _) in curve.items() if plain.rate <= best + FLAT]
    return min(curve, key=lambda threshold: abs(threshold - (flat[0] + flat[-1]) / 2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="infra.lab.evaluation.diarization_threshold")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=Path, required=True)
    parser.add_argument("--window", type=float, default=1.6, help="seconds")
    parser.add_argument("--hop", type=float, default=0.8, help="seconds")
    parser.add_argument("--write", type=Path, metavar="MODEL", help="directory of the model that the folds speak for")
    options = parser.parse_args(arguments)
    settings = DiarizationSettings(options.window, options.hop, 1.0)
    folders = sorted(path.parent for path in options.folds.glob("*/speakers.txt"))
    try:
        curves = [error_curve(folder, options.data / "speech", settings, seed) for seed, folder in enumerate(folders)]
    except (OSError, ValueError, EarshotError) as error:
        print(f"infra.lab.evaluation.diarization_threshold: {error}", file=sys.stderr)
        return 1
    if len(curves) < 2:
        print(f"infra.lab.evaluation.diarization_threshold: {options.folds} has not two folds or more", file=sys.stderr)
        return 1
    whole = merge_curves(curves)
    for threshold, (plain, collared) in whole.items():
        print(f"{threshold:.2f}  {plain.rate:6.1%}  collar {collared.rate:6.1%}")
    print(f"chosen {choose_threshold(whole):.2f}")
    held_out = DiarizationErrors(), DiarizationErrors()
    for number, fold in enumerate(curves):
        threshold = choose_threshold(merge_curves([other for other in curves if other is not fold]))
        plain, collared = fold[threshold]
        held_out = held_out[0] + plain, held_out[1] + collared
        print(f"{folders[number].name} at {threshold:.2f}, chosen by the others: {plain.rate:.1%}", end="  ")
        print(f"missed {plain.missed_s / plain.speech_s:.1%}", end="  ")
        print(f"false alarm {plain.false_alarm_s / plain.speech_s:.1%}", end="  ")
        print(f"confusion {plain.confusion_s / plain.speech_s:.1%}  collar {collared.rate:.1%}")
    if options.write is not None:
        _write(options.write, msgspec.structs.replace(settings, threshold=choose_threshold(whole)), *held_out)
    return 0


def _write(
    directory: Path, settings: DiarizationSettings, plain: DiarizationErrors, collared: DiarizationErrors
) -> None:
    model = manifest.read(directory)
    rates = {"diarization_error": round(plain.rate, 4), "diarization_error_collar": round(collared.rate, 4)}
    changed = msgspec.structs.replace(model, diarization=settings, figures=model.figures | rates)
    manifest_files.write(directory, changed)


if __name__ == "__main__":
    sys.exit(main())
