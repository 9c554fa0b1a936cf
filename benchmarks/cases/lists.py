"""A page of 50 jobs of a project with 100,000 jobs, relative to a project with 100."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import processes, procfs
from benchmarks.cases.setup import Setup
from benchmarks.filling import append, make_project, opened_log
from benchmarks.measures import Row, value_row
from benchmarks.plans import ReadPlan
from topics import keys, record_codec
from topics.catalog import JOB_COMMANDS, JOB_RESULTS
from topics.jobs.options import Options, Service
from topics.jobs.records import Accepted, Finished, Part, Source, Started

FEW: Final = 100
MANY: Final = 100_000
READS: Final = 2_000
BAR: Final = 1.5
#: A service is idle if it used less than this in a second; one that never is idle is measured anyway.
IDLE_CPU_SECONDS: Final = 0.05
REST_SECONDS: Final = 120.0


def measure(setup: Setup) -> Iterator[Row]:
    """Yield one row: the newest page, on one connection, of two services that run side by side."""
    with ExitStack() as stack:
        directory = stack.enter_context(processes.temporary_directory())
        many, few = (
            stack.enter_context(_filled(directory / name, count))
            for name, count in (("many", setup.size(MANY)), ("few", FEW))
        )
        for server in (many, few):
            _let_rest(server)
        paths = ("/api/v1/jobs?count=50",)
        plans = (ReadPlan(server.target(), 1, paths, setup.size(READS), keyed=True) for server in (many, few))
        pairs = processes.alternate_loads(plans, setup.pairs)
    ratios = [small.per_cpu / large.per_cpu for large, small in pairs]
    beside = {
        "p50 ms among 100,000": median(median(large.latencies) for large, _ in pairs),
        "p50 ms among 100": median(median(small.latencies) for _, small in pairs),
    }
    yield value_row("list page of 50, CPU a read", ratios, "ratio", BAR, beside)


def _let_rest(server: processes.ServerProcess) -> None:
    """Wait until the work left from startup is done, so that it does not count as reading."""
    deadline = time.monotonic() + REST_SECONDS
    before = procfs.cpu_seconds([server.pid])
    while time.monotonic() < deadline:
        time.sleep(1.0)
        now = procfs.cpu_seconds([server.pid])
        if now - before < IDLE_CPU_SECONDS:
            return
        before = now


def _filled(data: Path, count: int) -> AbstractContextManager[processes.ServerProcess]:
    """Start a service whose project has `count` failed jobs, so that nothing is left to do or to bill."""
    asyncio.run(_append(data, make_project(data), count))
    return processes.service(data)


async def _append(data: Path, project: str, count: int) -> None:
    log = opened_log(data)
    options = Options(sound_event_detection=True)
    source = Source("audio/wav", "wav", 1, 16_000, 1, "recording.wav")
    accepted = Accepted("fill", "fill", 1, project, "fill", options, source, "fill", b"fill")
    commands = [record_codec.encode(one) for one in (Part("fill", "fill", 0, b"-"), accepted)]
    results = [
        record_codec.encode(one)
        for one in (Started(Service.SOUND, "fill"), Finished(Service.SOUND, "fill", 0, "filled, and not analysed"))
    ]
    for _ in range(count):
        job = keys.new_id()
        for topic, records in ((JOB_COMMANDS, commands), (JOB_RESULTS, results)):
            appended = [append(log, topic, job, record) for record in records]
        await appended[-1]
    await log.close()
