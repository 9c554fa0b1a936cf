"""Evaluates diarization on long conversations, by length and number of speakers.

    python -m infra.lab.evaluation.long_diarization --data DATA --folds DIR [--minutes 1,3,5,10]
        [--speakers 1,2,3,4,6]

DIR holds a folder per fold with a model and `speakers.txt`, the held-out readers, as written by
`infra.lab.training.speaker`. Every fold contributes two conversations of each length and number of speakers. For each
pair it prints the error rate without a collar, the mean number of speakers found, and how often that number was right.
A minute of conversation takes about a second on one core.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from infra.lab.evaluation import utterances
from infra.lab.evaluation.diarization import DiarizationErrors, diarization_errors
from infra.lab.evaluation.long_conversations import LongConversationMaker
from streams.voice.activity import SileroDetector, bundled_detector
from streams.voice.diarization import diarize
from streams.voice.speaker_engine import OnnxSpeakerEngine, SpeakerEngine
from topics.errors import EarshotError

#: One without and one with a room and noise.
CONVERSATIONS: Final = 2


class Cell(msgspec.Struct, frozen=True):
    """Sums over the conversations of one length and number of speakers."""

    errors: DiarizationErrors = DiarizationErrors()
    found: int = 0
    right: int = 0
    conversations: int = 0

    def __add__(self, other: Cell) -> Cell:
        return Cell(
            self.errors + other.errors,
            self.found + other.found,
            self.right + other.right,
            self.conversations + other.conversations,
        )


def evaluate_cells(
    engine: SpeakerEngine,
    activity: SileroDetector,
    makes: LongConversationMaker,
    cells: Sequence[tuple[float, int]],
    seed: int,
) -> dict[tuple[float, int], Cell]:
    """Evaluate a model with its own settings on conversations of each (minutes, speakers).

    Raises:
        EngineError: A model failed, or has no settings.
        ValueError: There are fewer readers than speakers.
    """
    result: dict[tuple[float, int], Cell] = defaultdict(Cell)
    for minutes, speakers in cells:
        for number in range(CONVERSATIONS):
            talk = makes.make(minutes, speakers, number, seed)
            turns = diarize([talk.samples], engine, activity)
            count = len({turn.speaker for turn in turns})
            result[minutes, speakers] += Cell(diarization_errors(talk.turns, turns), count, int(count == speakers), 1)
    return result


def table(cells: Mapping[tuple[float, int], Cell]) -> str:
    """Return a table: a line per length, a column per number of speakers, totals last."""
    lengths, numbers = (sorted(set(axis)) for axis in zip(*cells, strict=True))
    lines = ["speakers" + "".join(f"{number:>21}" for number in (*numbers, "all"))]
    for length in (*lengths, None):
        chosen = [
            [
                cell
                for (minutes, speakers), cell in cells.items()
                if length in (minutes, None) and number in (speakers, 0)
            ]
            for number in (*numbers, 0)
        ]
        name = "all" if length is None else f"{length:g} min"
        lines.append(f"{name:8}" + "".join(_text(sum(column, Cell())) for column in chosen).rstrip())
    return "\n".join(lines)


def _text(cell: Cell) -> str:
    mean_speakers = cell.found / cell.conversations
    return f"  {cell.errors.rate:6.1%} {mean_speakers:4.1f} {cell.right:3}/{cell.conversations:<3}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="infra.lab.evaluation.long_diarization")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=Path, required=True)
    parser.add_argument("--minutes", default="1,3,5,10")
    parser.add_argument("--speakers", default="1,2,3,4,6")
    options = parser.parse_args(arguments)
    whole: dict[tuple[float, int], Cell] = defaultdict(Cell)
    try:
        lengths = [
            (float(minutes), int(speakers))
            for minutes in options.minutes.split(",")
            for speakers in options.speakers.split(",")
        ]
        for seed, path in enumerate(sorted(options.folds.glob("*/speakers.txt"))):
            readers = utterances.read(options.data / "speech", path.read_text().split())
            makes = LongConversationMaker(readers, bundled_detector())
            for key, cell in evaluate_cells(
                OnnxSpeakerEngine(path.parent), bundled_detector(), makes, lengths, seed
            ).items():
                whole[key] += cell
    except (OSError, ValueError, EarshotError) as error:
        print(f"infra.lab.evaluation.long_diarization: {error}", file=sys.stderr)
        return 1
    if not whole:
        print(f"infra.lab.evaluation.long_diarization: {options.folds} has no folds", file=sys.stderr)
        return 1
    print(table(whole))
    return 0


if __name__ == "__main__":
    sys.exit(main())
