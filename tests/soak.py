"""The long forms of the tests that kill, pause and attack, in sequence: `python -m tests.soak [NAME...]`.

All of them take some hours. A failure stops nothing; the last lines list the failures.
"""

import argparse
import os
import subprocess
import sys
import time
from typing import Final

Lengths = dict[str, int]

#: Each run: arguments of `python -m`, and its duration, in variables with the prefix EARSHOT_TEST_.
RUNS: Final[dict[str, tuple[str, Lengths]]] = {
    "kill": ("pytest tests/recovery/test_kill.py", {"CHUNKS": 20_000}),
    "alarms": ("pytest -s tests/recovery/test_alarms_kill.py", {"ALARMS": 100_000, "ALARM_KILLS": 5}),
    "workers": ("pytest -s tests/recovery/test_worker_kill.py", {"WORKER_KILLS": 500}),
    "jobs": ("pytest tests/recovery/test_jobs_kill.py", {"JOBS": 500}),
    "speakers": ("pytest tests/recovery/test_speakers_kill.py", {"KILLS": 50}),
    "log": ("pytest tests/recovery/test_log_crash.py", {"KILLS": 50}),
    "disk": ("pytest tests/recovery/test_full_disk.py", {"FILLS": 10}),
    "broker": ("pytest tests/recovery/test_broker_away.py", {"REFUSALS": 30}),
    "swap": ("pytest tests/recovery/test_swap.py", {"SWAPS": 30}),
    "neighbour": ("pytest tests/cluster/test_neighbour.py", {"RESTARTS": 20}),
    "agent": (
        "pytest -s -rs tests/recovery/test_agent.py tests/recovery/test_agent_mediamtx.py",
        {"FAULTS": 50, "SOURCES": 16, "AWAY": 600, "MEDIAMTX_FAULTS": 50},
    ),
    "deaths": ("pytest -s tests/cluster/test_deaths.py", {"DEATHS": 20}),
    "lanes": (
        "pytest tests/lanes/test_kill.py tests/lanes/test_kafka.py tests/unit/infra/service/test_lanes.py",
        {"LANE_KILLS": 200, "LANE_CHANGES": 300, "KAFKA_LANE_KILLS": 50, "MOVES": 1000},
    ),
    "damage": ("pytest -s tests/damage/test_damage.py", {"CASES": 500}),
    "fencing": ("pytest -s tests/fencing/test_pauses.py", {"PAUSES": 50}),
    "simulation": ("tests.simulation --histories 20000 --jobs 2", {}),
    "properties": ("pytest tests/unit -m hypothesis", {"RANDOM": 1}),
    "regressions": ("tests.simulation --regressions --histories 5000 --jobs 2", {}),
    "generated": ("pytest tests/contract/test_generated_requests.py", {"EXAMPLES": 100}),
    "attacks": (
        "pytest tests/attacks --ignore=tests/attacks/test_owasp.py",
        {"ATTACK_SECONDS": 10, "FAULTY_CHUNKS": 10_000},
    ),
}


def main() -> int:
    """Run the named tests, or all; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*RUNS, []], metavar="NAME", help=", ".join(RUNS))
    failed = [name for name in parser.parse_args().names or RUNS if not _passed(name)]
    print(f"failed: {', '.join(failed)}" if failed else "nothing failed")
    return int(bool(failed))


def _passed(name: str) -> bool:
    module, lengths = RUNS[name]
    chosen = {f"EARSHOT_TEST_{variable}": str(number) for variable, number in lengths.items()}
    print(f"{name}: {' '.join(f'{variable}={number}' for variable, number in chosen.items())} {module}", flush=True)
    began = time.monotonic()
    # Variables of the shell take precedence, to run even longer or to repeat a seed.
    done = subprocess.run([sys.executable, "-m", *module.split()], env={**chosen, **os.environ})
    print(f"{name}: {'failed' if done.returncode else 'passed'} after {time.monotonic() - began:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
