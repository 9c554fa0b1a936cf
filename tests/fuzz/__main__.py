"""`python -m tests.fuzz [--minutes 5] [--target NAME] [--seed N]`: fuzz, print counts, keep findings."""

import argparse
import sys
import time

from tests.fuzz.runner import fuzz
from tests.fuzz.targets import TARGETS, by_name


def main() -> int:
    """Return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together")
    parser.add_argument("--target", choices=[target.name for target in TARGETS], action="append")
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    targets = [by_name(name) for name in options.target] if options.target else TARGETS
    weights = sum(target.weight for target in targets)
    found = total = 0
    print(f"seed {options.seed}")
    for target in targets:
        outcome = fuzz(target, options.minutes * 60 * target.weight / weights, options.seed)
        total, found = total + outcome.inputs, found + len(outcome.findings)
        rate = outcome.inputs / max(outcome.seconds, 0.001)
        print(
            f"{target.name:10} {outcome.inputs:>10,} inputs {rate:>9,.0f}/s, slowest {outcome.slowest:.3f} s",
            flush=True,
        )
        for finding in outcome.findings:
            print(f"  {finding.fault[:300]}\n  kept as {finding.keep()}", flush=True)
    print(f"{total:,} inputs, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
