"""Histories by the thousand: `python -m tests.simulation --histories 1000 --seed 1` states how many were checked."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.campaign import Summary, outcomes
from tests.simulation.regressions import REGRESSIONS

#: What is said of a history that went wrong.
LINES = 4
LONGEST_LINE = 600


def main() -> int:
    """Run, and return 1 when a history was wrong, or when a fault that was put back was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first; each further one has the next")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run histories")
    parser.add_argument("--seconds", type=float, help="begin no further history after so long")
    parser.add_argument(
        "--fault",
        type=int,
        choices=[number for number in REGRESSIONS if number],
        help="put a fault back, and stop once found",
    )
    asked = parser.parse_args()
    began = time.monotonic()
    summary = Summary(asked.seed)
    seeds = range(asked.seed, asked.seed + asked.histories)
    for outcome in outcomes(seeds, asked.jobs, asked.fault):
        summary.add(outcome)
        if outcome.wrong:
            print(f"python -m tests.simulation --seed {outcome.seed} --histories 1" + _put_back(asked.fault))
            for line in outcome.wrong[:LINES]:
                print(f"  {line[:LONGEST_LINE]}", flush=True)
            if asked.fault:
                break
        if asked.seconds is not None and time.monotonic() - began > asked.seconds:
            break
    print(f"{summary} in {time.monotonic() - began:.0f} s")
    return int(not summary.wrong) if asked.fault else int(summary.wrong > 0)


def _put_back(fault: int | None) -> str:
    return f" --fault {fault}" if fault else ""


if __name__ == "__main__":
    sys.exit(main())
