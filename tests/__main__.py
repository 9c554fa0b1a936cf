"""Runs all test stages that this machine supports, in order: `python -m tests`, called by `make test`.

A failed stage does not stop later ones. The last lines show the time of each stage, the slowest tests and the failures.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import msgspec

from tests.kafka.broker import NAMED, shared_broker

ROOT: Final = Path(__file__).parent.parent
#: Parallel tests. Tests mostly wait, so run two more than there are cores.
BESIDE: Final = (os.cpu_count() or 1) + 2
SLOWEST: Final = 12
OUTCOMES: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}
ENVIRONMENT: Final = {
    # Test brokers live for minutes, too short for Java's second compiler to pay off.
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    # Each core runs a process, so a matrix product must not use all cores.
    "OPENBLAS_NUM_THREADS": "1",
}


#: A file system in memory, where no test waits for a shared disk.
MEMORY: Final = Path("/dev/shm")
MEMORY_BYTES: Final = 8 * 1024**3


class Stage(msgspec.Struct, frozen=True):
    """A command; pytest if it begins with an option or a path of a test."""

    name: str
    arguments: Sequence[str]
    pytest: bool = True


#: Tests that have their own stage.
ELSEWHERE: Final = ("--ignore=tests/unit", "--ignore=tests/simulation")
STAGES: Final = (
    Stage("check", ("make", "--no-print-directory", f"-j{os.cpu_count() or 1}", "check", "modules"), pytest=False),
    Stage("unit", ("tests/unit", "tests/simulation", "-n", str(BESIDE), "--dist", "worksteal")),
    Stage(
        "service", (*ELSEWHERE, "-m", "not alone", "-n", str(BESIDE), "--dist", "loadgroup", "--no-loadscope-reorder")
    ),
    Stage("alone", (*ELSEWHERE, "-m", "alone")),
)


class Case(msgspec.Struct, frozen=True):
    name: str
    outcome: str
    seconds: float


class Ran(msgspec.Struct, frozen=True):
    """Result of a stage."""

    stage: Stage
    status: int
    seconds: float
    cases: Sequence[Case]

    @property
    def counts(self) -> Counter[str]:
        return Counter(case.outcome for case in self.cases)

    @property
    def failed(self) -> list[str]:
        """Names of the failures; the stage itself if it failed without a failed test."""
        names = [case.name for case in self.cases if case.outcome == "failed"]
        return names or ([f"{self.stage.name} (status {self.status})"] if self.status else [])


def run(stage: Stage, report: Path, more: Sequence[str]) -> Ran:
    """Run a stage with our output streams."""
    command: Sequence[str] = stage.arguments
    if stage.pytest:
        command = (sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *stage.arguments, *more)
    print(f"--- {stage.name}", flush=True)
    began = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    return Ran(stage, status, time.monotonic() - began, list(cases(report)))


def cases(report: Path) -> Iterator[Case]:
    """Yield the tests of a JUnit report; none if it was not written."""
    if not report.exists():
        return
    for element in ElementTree.parse(report).iter("testcase"):
        outcome = next((OUTCOMES[child.tag] for child in element if child.tag in OUTCOMES), "passed")
        yield Case(f"{element.get('classname')}::{element.get('name')}", outcome, float(element.get("time", 0)))


def summary(stages: Sequence[Ran]) -> Iterator[str]:
    """Yield the final lines of the run; the last one counts all tests."""
    yield ""
    yield f"{'stage':10}{'seconds':>9}{'passed':>9}{'failed':>9}{'skipped':>9}"
    for ran in stages:
        numbers = (ran.counts["passed"], len(ran.failed), ran.counts["skipped"])
        yield f"{ran.stage.name:10}{ran.seconds:9.0f}" + "".join(f"{number:9}" for number in numbers)
    slowest = sorted((case for ran in stages for case in ran.cases), key=lambda case: -case.seconds)[:SLOWEST]
    yield from ("", "slowest:", *(f"{case.seconds:7.1f} s  {case.name}" for case in slowest))
    failed = [name for ran in stages for name in ran.failed]
    if failed:
        yield from ("", "failed:", *(f"  {name}" for name in failed))
    total = sum((ran.counts for ran in stages), Counter[str]())
    yield from ("", f"{total['passed']} passed, {len(failed)} failed, {total['skipped']} skipped")


@contextmanager
def in_memory() -> Iterator[str]:
    """Yield a temporary directory for all tests, in memory if there is room, and delete it afterwards."""
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
    with tempfile.TemporaryDirectory(prefix="earshot-tests-", dir=MEMORY if roomy else None) as directory:
        # PostgreSQL runs as a user other than root.
        os.chmod(directory, 0o711)
        os.environ |= {**ENVIRONMENT, "TMPDIR": directory}
        # Drop the usual place, which tempfile may have cached.
        tempfile.tempdir = None
        yield directory


def main() -> int:
    """Run the named stages, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("--stage", action="append", choices=[stage.name for stage in STAGES], help="only this one")
    wanted, more = parser.parse_known_args()
    with in_memory() as directory, shared_broker() as broker:
        if broker is not None:
            os.environ[NAMED] = broker
        stages = [
            run(stage, Path(directory) / stage.name, more)
            for stage in STAGES
            if wanted.stage is None or stage.name in wanted.stage
        ]
    print("\n".join(summary(stages)), flush=True)
    return int(any(ran.failed for ran in stages))


if __name__ == "__main__":
    sys.exit(main())
