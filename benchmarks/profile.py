"""CPU time of a chunk by component: `python -m benchmarks.profile [windows|chunks]`, needs py-spy on the PATH.

py-spy samples the stacks of the threads of the service and its children under load. Each sample belongs to the
component of its innermost frame in COMPONENTS, or to the room of `streams` that contains the frame. A thread that waits
for the interpreter's lock looks busy to py-spy, so the samples only divide the CPU time that the kernel counted for
each thread.
"""

import argparse
import re
import signal
import subprocess
from collections import Counter, defaultdict
from typing import Final

from benchmarks import processes, procfs
from benchmarks.cases.setup import Variant, running_service
from benchmarks.measures import Sample
from benchmarks.plans import LivePlan, Target, UploadPlan

RATE: Final = 100
#: Frames that are listed.
SHOWN: Final = 40

#: Frames of each stack, outermost first, and its sample count.
Stacks = list[tuple[list[str], int]]

#: The first pattern that a frame matches, innermost frame first, names the component.
COMPONENTS: Final = (
    ("model", r"models/sound_engine\.py|onnxruntime"),
    ("framing and log-mel", r"streams/audio/"),
    ("tag scores and packing", r"models/packing\.py"),
    ("JSON and base64", r"app/http/bodies\.py|pybase64|orjson"),
    ("log append and sync", r"streams/embedded/"),
    ("Kafka client", r"aiokafka|confluent_kafka|kafka\.py|streams/kafka/"),
    ("table write and changelog", r"streams/tables/|rocksdict"),
    ("fold of commands", r"folding/[abirv]\w+\.py|sessions/(intake|audio|rules)\.py|topics/folding\.py"),
    ("fold of results", r"sessions/results\.py"),
    ("analyser", r"sessions/(analyser|step|warm)\.py"),
    ("rows and codec", r"folding/(store|draft)\.py|topics/"),
    ("edge", r"app/"),
    ("HTTP", r"uvicorn|httptools|starlette"),
    ("group", r"faust|streams/membership/"),
    ("event loop", r"asyncio|infra/service/"),
)


#: Threads that wait for work; py-spy counts them as busy when they wait for the interpreter's lock.
WAITING: Final = re.compile(r"concurrent/futures/thread\.py|sessions/threads\.py|aiosqlite|queue\.py")


#: RocksDB's background work, and the cost of py-spy itself, which stops all threads at every sample.
OTHER_THREADS: Final = "threads without Python"
THREAD: Final = re.compile(r"thread \((\d+)\)")
PROCESS: Final = re.compile(r"^process [^;]*;")
#: Frames in a room without a pattern count for that room, so that moved code is not attributed to its callers.
ROOM: Final = re.compile(r"streams/\w+/")


def component(stack: list[str]) -> str:
    """Return the component of a stack, outermost frame first."""
    for frame in reversed(stack):
        for name, pattern in COMPONENTS:
            if re.search(pattern, frame):
                return name
        if room := ROOM.search(frame):
            return room[0]
    return "other"


def collapsed(text: str) -> Stacks:
    """Parse py-spy's raw output, lines of frames joined by semicolons and a count, without waiting threads."""
    lines = (line.rpartition(" ") for line in text.splitlines())
    # With several processes each stack begins with its process.
    stacks = [(PROCESS.sub("", frames).split(";"), int(count)) for frames, _, count in lines]
    return [(stack, count) for stack, count in stacks if not WAITING.search(stack[-1])]


def seconds(stacks: Stacks, threads: dict[int, float]) -> dict[str, float]:
    """Return CPU seconds by component; a stack's first frame is its thread, `threads` has the CPU of each."""
    sampled: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for (name, *stack), count in stacks:
        sampled[thread_id(name)][component(stack)] += count
    spent: defaultdict[str, float] = defaultdict(float)
    for thread, cpu in threads.items():
        shares = sampled[thread] or Counter({OTHER_THREADS: 1})
        for part, count in shares.items():
            spent[part] += cpu * count / shares.total()
    return spent


def thread_id(frame: str) -> int:
    """Return the thread id in py-spy's outermost frame; 0 if it has none."""
    match = THREAD.match(frame)
    return int(match[1]) if match else 0


def table(spent: dict[str, float], sample: Sample) -> str:
    """Return microseconds of CPU by component for one window or chunk."""
    each, total = 1e6 * sample.cpu / sample.done, sum(spent.values())
    shares = [(name, cpu / total) for name, cpu in sorted(spent.items(), key=lambda item: -item[1])]
    lines = [f"| {name} | {each * share:.0f} | {share:.0%} |" for name, share in shares]
    return "\n".join(["| component | us | share |", "| --- | --- | --- |", *lines, f"| all | {each:.0f} | 100% |"])


def hottest(stacks: Stacks) -> str:
    """Return the most frequent innermost frames, one a line."""
    counts: Counter[str] = Counter()
    for stack, count in stacks:
        counts[stack[-1]] += count
    return "\n".join(f"{count / counts.total():6.1%} {frame}" for frame, count in counts.most_common(SHOWN))


def plans(target: Target) -> dict[str, LivePlan | UploadPlan]:
    return {"windows": LivePlan(target, 32, 200), "chunks": UploadPlan(target, 32, 600)}


def thread_seconds(pid: int) -> dict[int, float]:
    return {thread: cpu for one in procfs.descendants(pid) for thread, cpu in procfs.thread_seconds(one).items()}


def record(load: str, variant: Variant) -> tuple[Stacks, dict[int, float], Sample]:
    """Load a service under py-spy; return stacks, the CPU seconds of each thread, and the load's sample."""
    with running_service(variant.log, **variant.settings) as (server, directory):
        plan = plans(server.target())[load]
        processes.run_load(LivePlan(server.target(), 32, 16))
        raw = directory / "stacks"
        options = f"record --threads --subprocesses -d 600 -f raw -r {RATE} -p {server.pid} -o {raw}"
        before = thread_seconds(server.pid)
        quiet = subprocess.DEVNULL
        with subprocess.Popen(["py-spy", *options.split()], stdout=quiet, stderr=quiet) as watcher:
            sample = processes.run_load(plan)
            after = thread_seconds(server.pid)
            watcher.send_signal(signal.SIGINT)
        spent = {thread: cpu - before.get(thread, 0.0) for thread, cpu in after.items()}
        return collapsed(raw.read_text()), spent, sample


def main() -> None:
    """Print the table of one load, and its hottest frames."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("load", nargs="?", default="windows", choices=["windows", "chunks"])
    parser.add_argument("--model", default="yamnet", help="name of a bundled model (yamnet)")
    parser.add_argument("--kafka", type=int, metavar="PARTITIONS", help="on Kafka, not on the embedded log")
    chosen = parser.parse_args()
    variant = Variant(chosen.model, "kafka" if chosen.kafka else "embedded", chosen.kafka)
    stacks, threads, sample = record(chosen.load, variant)
    print(table(seconds(stacks, threads), sample), hottest(stacks), sep="\n\n")


if __name__ == "__main__":
    main()
