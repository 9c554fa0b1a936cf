"""Word error rate of the bundled speech engine.

    python -m infra.lab.evaluation.transcription --data DATA

prints it for the readings of a data directory: `readings/readings.csv` names files and what is read in them. The rate
is jiwer's: substitutions, deletions and insertions over the words of the reference, all readings together.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import jiwer

from infra.engines.sphinx import Recogniser
from topics.errors import EarshotError


def readings(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield (recording, what is read in it) of the table `readings.csv` in `folder`."""
    with (folder / "readings.csv").open(newline="", encoding="utf-8") as table:
        for row in csv.DictReader(table):
            yield folder / row["file"], row["text"]


def word_error_rate(transcribe: Callable[[Path], str], material: Iterable[tuple[Path, str]]) -> float:
    """Return the word error rate, 0 or more, of transcripts of (recording, reference); case and punctuation are free.

    Raises:
        AudioError: a recording does not decode.
        ValueError: there is no word in the references.
    """
    references, hypotheses = [], []
    for recording, reference in material:
        references.append(_plain(reference))
        hypotheses.append(_plain(transcribe(recording)))
    if not any(references):
        raise ValueError("a word error rate needs references with words")
    return float(jiwer.wer(references, hypotheses))


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[\w']+", text.lower()))


def main(arguments: list[str] | None = None) -> int:
    """Print the rate; 2 when the readings are not there."""
    parser = argparse.ArgumentParser(prog="python -m infra.lab.evaluation.transcription", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with readings")
    options = parser.parse_args(arguments)
    recogniser = Recogniser()

    def transcribe(recording: Path) -> str:
        return " ".join(word.text for word in recogniser.transcribe(recording).words)

    try:
        rate = word_error_rate(transcribe, readings(options.data / "readings"))
    except (EarshotError, OSError) as error:
        print(f"transcription: {error}", file=sys.stderr)
        return 2
    print(f"word error rate of the bundled speech engine  {rate:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
