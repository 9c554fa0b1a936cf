"""Histories by the thousand: `python -m tests.simulation --histories 1000 --seed 1` states how many were checked."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.history import run
from tests.simulation.seams import simulated

parser = argparse.ArgumentParser()
parser.add_argument("--histories", type=int, default=10)
parser.add_argument("--seed", type=int, default=1)
asked = parser.parse_args()
run_cpu = 0.0
bad = 0
with simulated():
    for seed in range(asked.seed, asked.seed + asked.histories):
        b = time.process_time()
        o = run(seed)
        run_cpu += time.process_time() - b
        if o.wrong or asked.histories < 5:
            bad += bool(o.wrong)
            print(seed, o.commands, o.takeovers, dict(o.faults), f"{o.seconds:.0f}s")
            for w in o.wrong[:4]:
                print("   ", w[:400])
print(bad, "of", asked.histories, f"{run_cpu * 1000 / asked.histories:.0f} ms each")
sys.exit(bad > 0)
