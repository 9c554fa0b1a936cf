"""`python -m benchmarks [NAME...]`: measure, and print one table of ratios."""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks import table
from benchmarks.cases import CASES
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(CASES)} (all by default)"
    )
    parser.add_argument("--pairs", type=int, default=5, help="runs of each contender, in turn (5)")
    parser.add_argument("--quick", action="store_true", help="runs of a tenth of the length, not to be quoted")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the rows to FILE, a JSON object a line")
    parser.add_argument("--no-kafka", dest="kafka", action="store_false", help="the embedded log alone")
    chosen = parser.parse_args(argv)
    if unknown := sorted(set(chosen.names) - CASES.keys()):
        parser.error(f"{unknown[0]} is none of {', '.join(CASES)}")
    if chosen.pairs < 1:
        parser.error("--pairs must be at least 1")
    return chosen


def append_rows(file: Path, setup: Setup, rows: Sequence[Row]) -> None:
    """Append the rows to a file, one line of JSON each, with time, commit and setup."""
    at, commit = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), table.commit()
    with file.open("ab") as lines:
        for row in rows:
            lines.write(msgspec.json.encode({"at": at, "commit": commit, "setup": setup, "row": row}) + b"\n")


def main() -> int:
    """Run the measurements; return 1 if a bar is missed."""
    chosen = arguments(sys.argv[1:])
    kafka = chosen.kafka and all(map(shutil.which, ("java", "mvn")))
    if chosen.kafka and not kafka:
        print("Kafka is left out: it needs java and mvn", file=sys.stderr)
    setup = Setup(chosen.pairs, chosen.quick, kafka)
    print(table.heading(), table.HEADER, sep="\n\n", flush=True)
    rows: list[Row] = []
    for name in chosen.names or CASES:
        for row in CASES[name](setup):
            rows.append(row)
            print(table.line(row), flush=True)
    if chosen.json is not None:
        append_rows(chosen.json, setup, rows)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
