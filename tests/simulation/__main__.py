"""Many histories: `python -m tests.simulation --histories 1000 --seed 1` prints how many were checked."""

import argparse
import os
import sys
import time

from tests.simulation.campaign import Summary, found, outcomes
from tests.simulation.regressions import REGRESSIONS

KNOWN = [fault for fault in REGRESSIONS if fault is not None]
#: Lines printed for a failed history.
LINES = 4
LONGEST_LINE = 600


def main() -> int:
    """Run; return 1 if a history failed, or if a reintroduced fault was not found."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Otherwise sets of names have another order in each process, and a seed determines no history.
        command = (sys.executable, "-m", "tests.simulation", *sys.argv[1:])
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first; each further one has the next")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that run histories (one a core)")
    parser.add_argument("--fault", type=int, choices=KNOWN, help="put a fault back, and stop once it is found")
    parser.add_argument("--regressions", action="store_true", help="put each fault back, one after the other")
    asked = parser.parse_args()

    def seeds(first: int) -> range:
        return range(first, first + asked.histories)

    if asked.regressions:
        missed = [fault for fault in KNOWN if not _run(seeds(asked.seed), asked.jobs, fault).wrong]
        print(f"not found: {missed}" if missed else "each fault was found")
        return int(bool(missed))
    summary = _run(seeds(asked.seed), asked.jobs, asked.fault)
    return int(bool(summary.wrong) is (asked.fault is None))


def _run(seeds: range, jobs: int, fault: int | None) -> Summary:
    """Run histories, those with a fault until one fails, and print a summary."""
    began, summary = time.monotonic(), Summary(seeds[0])
    for outcome in found(seeds, jobs, fault) if fault else outcomes(seeds, jobs):
        summary.add(outcome)
        if outcome.wrong:
            put_back = f" --fault {fault}" if fault else ""
            print(f"python -m tests.simulation --seed {outcome.seed} --histories 1{put_back}")
            for line in outcome.wrong[:LINES]:
                print(f"  {line[:LONGEST_LINE]}", flush=True)
    print(f"{summary} in {time.monotonic() - began:.0f} s", flush=True)
    return summary


if __name__ == "__main__":
    sys.exit(main())
