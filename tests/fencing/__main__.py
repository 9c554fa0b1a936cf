"""Many pauses: `python -m tests.fencing --pauses 50` prints each fault and the findings after it."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.fencing.campaign import Row, campaign
from tests.fencing.checker import NOTHING_WRONG
from tests.fencing.faults import FAULTS, plan
from tests.fencing.scene import scene

COLUMNS = ("#", "what", "s", "ready s", "ended", "held", "chunks", "repeats", "sessions", "deleted", "refused")


def main() -> int:
    """Run; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fencing", description=__doc__)
    parser.add_argument("--pauses", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kind", action="append", choices=list(FAULTS), help="only this one; may be repeated")
    parser.add_argument("--again", action="store_true", help="compare all that ever ended after each fault")
    parser.add_argument("--keep", type=Path, help="directory that keeps tables and logs of the nodes")
    asked = parser.parse_args()
    kinds = plan(asked.seed, asked.pauses, asked.kind)
    chosen = "".join(f' --kind "{kind}"' for kind in asked.kind or ())
    print(f"python -m tests.fencing --pauses {asked.pauses} --nodes {asked.nodes} --seed {asked.seed}{chosen}")
    with tempfile.TemporaryDirectory(prefix="earshot-fencing-") as scratch:
        return asyncio.run(_run(asked.keep or Path(scratch), kinds, asked))


async def _run(directory: Path, kinds: list[str], asked: argparse.Namespace) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    print("| " + " | ".join((*COLUMNS, *NOTHING_WRONG)) + " |")
    print("|" + " --- |" * (len(COLUMNS) + len(NOTHING_WRONG)))
    wrong, number = 0, 0
    with scene(directory, asked.nodes) as stage:
        async for row in campaign(stage, kinds, asked.seed, asked.again):
            number += 1
            print(_line(number, row), flush=True)
            details = [*row.findings.wrong, *(f"refused: {answer}" for answer in sorted(set(row.refused)))]
            for line in details:
                print(f"  {line}", flush=True)
            wrong += bool(details)
    print(f"{wrong} of {number} rows have faults")
    return int(wrong > 0)


def _line(number: int, row: Row) -> str:
    cells = [number, row.what, f"{row.seconds:.1f}", f"{row.settled:.1f}", row.ended, row.held, row.chunks, row.repeats]
    cells += [row.sessions, row.deleted, len(row.refused), *(row.findings.counts[name] for name in NOTHING_WRONG)]
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    sys.exit(main())
