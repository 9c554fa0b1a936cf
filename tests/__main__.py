"""Runs all test stages that this machine supports: `python -m tests`, called by `make test`.

A failed stage stops no other. The last lines show the time and the processor time of each stage, the slowest tests,
the failures and the time of the whole run. `python -m tests --record` also keeps the seconds of each group of tests of
services, of which the longest start first.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import msgspec

from tests import groups
from tests.kafka.broker import NAMED, shared_broker

ROOT: Final = Path(__file__).parent.parent
CORES: Final = os.cpu_count() or 1
#: Tests of services beside each other: most of their time they wait, for timeouts of Kafka and for their processes.
WAITING: Final = 2 * CORES
SLOWEST: Final = 12
#: Lines that the summary shows of a stage that failed without a failed test, and characters of a test's reason.
END_LINES: Final = 12
REASON_LENGTH: Final = 300
OUTCOMES: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}
ENVIRONMENT: Final = {
    # Test brokers live for minutes, too short for Java's second compiler to pay off.
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    # Each core runs a process, so a matrix product must not use all cores.
    "OPENBLAS_NUM_THREADS": "1",
    # Sets of names have one order, and so a seed determines a simulated history in any process.
    "PYTHONHASHSEED": "0",
}


#: A file system in memory, where no test waits for a shared disk.
MEMORY: Final = Path("/dev/shm")
MEMORY_BYTES: Final = 8 * 1024**3


class Stage(msgspec.Struct, frozen=True):
    """A command; pytest if it begins with an option or a path of a test."""

    name: str
    arguments: Sequence[str]
    pytest: bool = True
    #: Processor time that others want is theirs.
    nice: int = 0
    #: Its processes share a Kafka.
    kafka: bool = False


#: Tests that have their own stage.
ELSEWHERE: Final = ("--ignore=tests/unit", "--ignore=tests/simulation", "--ignore=tests/documentation")
#: In order; lanes of one place run beside each other, and the stages of a lane one after another. Whoever computes is
#: nice to whoever waits for a service, and so the processors are never idle. The first lane shows its progress.
STAGES: Final[Sequence[Sequence[Sequence[Stage]]]] = (
    (
        # Everything that starts a service, by groups that share one (`tests/conftest.py`), the longest first.
        (
            Stage(
                "service",
                (*ELSEWHERE, "-m", "not alone", "-n", str(WAITING), "--dist", "loadgroup", "--no-loadscope-reorder"),
                kafka=True,
            ),
        ),
        # The blocks of the pages in a copy of the project: one test after another, so nobody else delays them.
        (Stage("pages", ("tests/documentation",)),),
        # Lint, types, import rules, documentation, scripts; rooms in one process, and histories of simulated nodes.
        (
            Stage("check", ("make", "--no-print-directory", f"-j{CORES}", "check"), pytest=False, nice=10),
            Stage("unit", ("tests/unit", "-n", str(CORES), "--dist", "worksteal"), nice=10),
            Stage("simulation", ("tests/simulation", "-n", str(CORES), "--dist", "worksteal"), nice=10),
        ),
    ),
    # What measures time, with nothing beside it.
    ((Stage("alone", (*ELSEWHERE, "-m", "alone")),),),
)
NAMES: Final = [stage.name for lanes in STAGES for lane in lanes for stage in lane]


class Case(msgspec.Struct, frozen=True):
    name: str
    outcome: str
    seconds: float
    #: Why it failed.
    reason: str = ""


class Ran(msgspec.Struct, frozen=True):
    """Result of a stage."""

    stage: Stage
    status: int
    seconds: float
    #: Processor seconds of its processes; without those that nobody waited for.
    processor: float
    cases: Sequence[Case]
    #: The end of what it printed, if its output went into a file.
    end: str = ""

    @property
    def counts(self) -> Counter[str]:
        return Counter(case.outcome for case in self.cases)

    @property
    def failed(self) -> list[Case]:
        """The failures; the stage itself if it failed without a failed test."""
        failed = [case for case in self.cases if case.outcome == "failed"]
        stage = Case(f"{self.stage.name} (status {self.status})", "failed", self.seconds, self.end)
        return failed or ([stage] if self.status else [])


def run(stage: Stage, directory: Path, more: Sequence[str], shown: bool) -> Ran:
    """Run a stage with our output streams, or with a file named like it."""
    command, report = stage.arguments, directory / stage.name
    if stage.pytest:
        command = (sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *stage.arguments, *more)
    if shown:
        print(f"--- {stage.name}", flush=True)
    began = time.monotonic()
    broker = shared_broker() if stage.kafka else nullcontext()
    with report.with_suffix(".txt").open("wb") as file, broker as named:
        # Ports of stages that run beside each other are different.
        own = {"EARSHOT_TEST_STAGE": str(NAMES.index(stage.name))} | ({NAMED: named} if named else {})
        process = subprocess.Popen(
            ("nice", "-n", str(stage.nice), *command),
            cwd=ROOT,
            env={**os.environ, **own},
            stdout=None if shown else file,
            stderr=None if shown else subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    processor = used.ru_utime + used.ru_stime
    end = "\n".join(report.with_suffix(".txt").read_text(errors="replace").splitlines()[-END_LINES:])
    return Ran(stage, process.returncode, time.monotonic() - began, processor, list(cases(report)), end)


def run_beside(lanes: Sequence[Sequence[Stage]], directory: Path, more: Sequence[str]) -> Iterator[Ran]:
    """Run lanes beside each other; yield what became of their stages, and show the output that was not shown yet."""
    with ThreadPoolExecutor(len(lanes)) as pool:
        running = [
            pool.submit(lambda lane, shown: [run(stage, directory, more, shown) for stage in lane], lane, number == 0)
            for number, lane in enumerate(lanes)
        ]
    for one in running:
        for ran in one.result():
            if text := (directory / f"{ran.stage.name}.txt").read_text(errors="replace"):
                print(f"--- {ran.stage.name}\n{text}", flush=True)
            yield ran


def cases(report: Path) -> Iterator[Case]:
    """Yield the tests of a JUnit report; none if it was not written."""
    if not report.exists():
        return
    for element in ElementTree.parse(report).iter("testcase"):
        ended = next((child for child in element if child.tag in OUTCOMES), None)
        outcome, reason = ("passed", "") if ended is None else (OUTCOMES[ended.tag], ended.get("message", ""))
        seconds = float(element.get("time", 0))
        yield Case(f"{element.get('classname')}::{element.get('name')}", outcome, seconds, reason[:REASON_LENGTH])


def record(ran: Ran) -> None:
    """Keep the seconds of each group of a stage for the order of later runs, the longest first."""
    seconds = Counter[str]()
    for case in ran.cases:
        module, _, test = case.name.partition("::")
        seconds[groups.group(f"{module.replace('.', '/')}.py::{test}")] += round(case.seconds)
    lines = (f"{number:5} {name}\n" for name, number in seconds.most_common() if number)
    groups.DURATIONS.write_text("".join(lines))


def summary(stages: Sequence[Ran], seconds: float) -> Iterator[str]:
    """Yield the final lines of the run; the last one counts all tests."""
    yield ""
    yield f"{'stage':10}{'seconds':>9}{'processor':>11}{'passed':>9}{'failed':>9}{'skipped':>9}"
    for ran in stages:
        numbers = (ran.counts["passed"], len(ran.failed), ran.counts["skipped"])
        yield f"{ran.stage.name:10}{ran.seconds:9.0f}{ran.processor:11.0f}" + "".join(
            f"{number:9}" for number in numbers
        )
    slowest = sorted((case for ran in stages for case in ran.cases), key=lambda case: -case.seconds)[:SLOWEST]
    yield from ("", "slowest:", *(f"{case.seconds:7.1f} s  {case.name}" for case in slowest))
    failed = [case for ran in stages for case in ran.failed]
    if failed:
        yield from ("", "failed:")
    for case in failed:
        yield from (f"  {case.name}", *(f"      {line}" for line in case.reason.splitlines()))
    total = sum((ran.counts for ran in stages), Counter[str]())
    counts = f"{total['passed']} passed, {len(failed)} failed, {total['skipped']} skipped"
    yield from ("", f"{counts} in {seconds:.0f} s")


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
    parser.add_argument("--stage", action="append", choices=NAMES, help="only this one")
    parser.add_argument("--record", action="store_true", help="keep the durations of the stage `service`")
    wanted, more = parser.parse_known_args()
    began, stages = time.monotonic(), list[Ran]()
    with in_memory() as directory:
        for lanes in STAGES:
            chosen = [[stage for stage in lane if stage.name in (wanted.stage or NAMES)] for lane in lanes]
            if kept := list(filter(None, chosen)):
                stages += run_beside(kept, Path(directory), more)
    if wanted.record:
        record(next(ran for ran in stages if ran.stage.name == "service"))
    print("\n".join(summary(stages, time.monotonic() - began)), flush=True)
    return int(any(ran.failed for ran in stages))


if __name__ == "__main__":
    sys.exit(main())
