"""Rules that find problems in a node's facts and describe each in a sentence."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from app.admin.admin_bodies import Finding
from topics.ports.nodes import DiskFacts, EngineFacts, NodeFacts, QueueFacts

State = Literal["good", "slow", "bad"]
#: Worst first.
STATES: Final[tuple[State, ...]] = ("bad", "slow", "good")

#: A fuller queue will soon refuse.
FULL: Final = 0.8
#: Seconds that audio may wait for analysis, and a job's services for their start.
LATE: Final = 10.0
LATE_JOBS: Final = 300.0
#: Seconds that a machine's clock may differ from the log's.
WRONG_CLOCK: Final = 5.0
#: A disk is nearly full below this share of free space, or below twice the free space that uploads must leave.
NEARLY_FULL: Final = 0.05


def findings(facts: NodeFacts) -> list[Finding]:
    """Return the problems of a node, worst first."""
    return sorted(_findings(facts), key=lambda finding: STATES.index(finding.state))


def worst(states: Iterable[State]) -> State:
    """Return the worst state, or good if there are none."""
    return min(states, key=STATES.index, default="good")


def _findings(facts: NodeFacts) -> Iterator[Finding]:
    if facts.not_ready is not None:
        yield Finding("bad", f"not ready: {facts.not_ready}")
    if facts.log_error is not None:
        yield Finding("bad", f"the log: {facts.log_error}")
    if facts.database_error is not None:
        yield Finding("bad", facts.database_error)
    for lost in facts.lost:
        yield Finding("bad", lost)
    for rebuilt in facts.rebuilt:
        yield Finding("slow", rebuilt)
    if (aside := facts.aside) is not None:
        there = f"{aside.count} damaged tables were set aside and take {aside.bytes / 1e6:.1f} MB"
        yield Finding("slow", f"{there}: remove *.damaged-* in {aside.directory} once you know why")
    if facts.outdated_speakers is not None:
        yield Finding("slow", facts.outdated_speakers)
    for partition in facts.partitions:
        if partition.state == "stopped":
            said = f"partition {partition.number} has stopped: {partition.reason}"
            yield Finding("bad", f"{said}; see `earshot partitions list`")
    if facts.workers and not any(one.process for one in facts.workers):
        yield Finding("bad", "no worker process runs: no audio is analysed")
    for engine in facts.engines:
        yield from _engine(engine)
    for disk in facts.disks:
        yield from disk_findings(disk)
    for queue in facts.queues:
        yield from _queue(queue)
    if facts.lag_seconds > LATE:
        yield Finding("slow", f"audio has waited for {facts.lag_seconds:.0f} s to be analysed")
    if facts.job_lag_seconds > LATE_JOBS:
        yield Finding("slow", f"a job has waited for {facts.job_lag_seconds:.0f} s")
    yield from clock_findings(facts.clock_ahead_seconds, "the log's")
    if facts.parked is not None and facts.parked.count:
        yield Finding("slow", f"{facts.parked.count} records could not be read and were set aside")


def _engine(engine: EngineFacts) -> Iterator[Finding]:
    if not engine.reachable:
        yield Finding("bad", f"the {engine.name} engine at {engine.address} does not answer")
    elif engine.failing:
        yield Finding("slow", f"the last call of the {engine.name} engine failed: {engine.error}")


def clock_findings(ahead: float, other: str) -> Iterator[Finding]:
    """Yield a problem if this machine's clock is many seconds `ahead` of another one, or behind."""
    if abs(ahead) > WRONG_CLOCK:
        differs = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {other}"
        yield Finding("slow", f"the clock of this machine is {differs}: synchronise both")


def disk_findings(disk: DiskFacts) -> Iterator[Finding]:
    """Yield a problem if a disk is full or nearly so."""
    free = f"{disk.free_bytes / 1e9:.1f} GB are free on the disk of {disk.holds}"
    if disk.free_bytes < disk.kept_free_bytes:
        yield Finding("bad", f"{free}: uploads are refused (EARSHOT_UPLOAD_FREE_BYTES)")
    elif disk.free_bytes < max(2 * disk.kept_free_bytes, NEARLY_FULL * disk.total_bytes):
        yield Finding("slow", free)


def _queue(queue: QueueFacts) -> Iterator[Finding]:
    for held, bound in ((queue.bytes, queue.bytes_bound), (queue.items, queue.items_bound)):
        if held is not None and bound and held > FULL * bound:
            yield Finding("slow", f"{held / bound:.0%} full: {queue.name}")
