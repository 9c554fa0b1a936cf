"""Many damage cases: `python -m tests.damage --cases 500 --seed S` prints how often each outcome occurred."""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

import structlog

from tests.damage.campaign import FINE, campaign, count


def main() -> int:
    """Run; return 1 if a start became ready with data missing, refused needlessly, or gave no reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print(f"python -m tests.damage --cases {asked.cases} --seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="earshot-damage-") as scratch:
        counts = count(asyncio.run(campaign(Path(scratch), asked.cases, asked.seed)))
    for outcome, times in sorted(counts.items()):
        print(f"{times:6} {outcome}")
    return int(not counts.keys() <= FINE)


if __name__ == "__main__":
    sys.exit(main())
