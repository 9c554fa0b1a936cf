"""Reports what blocks the event loop of a service: `python -m benchmarks.blocked [--streams 32] [--ms 3]`.

Live streams run in real time. A thread of the service records the loop's stack when one callback takes too long. Each
line has the count, the longest and the total in milliseconds of wall clock, the total in milliseconds of the loop
thread's processor time, and the innermost frames. Much wall clock and little processor time means waiting: for a disk,
for the interpreter's lock, or for the machine.
"""

import argparse
import asyncio
import sys
import threading
import time
import traceback
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec
import uvloop

from benchmarks import processes
from benchmarks.plans import PacedPlan
from infra.cli import main as earshot

BEAT_SECONDS: Final = 0.001
#: Frames shown per stack, innermost first.
SHOWN: Final = 4
MARK: Final = "blocked: "
ROOT: Final = Path(__file__).parent.parent


class Block(msgspec.Struct):
    """A callback that ran too long, in milliseconds."""

    wall: float
    ran: float
    stack: str


class LoopWatch:
    """Watches the loop of this thread from another thread, and prints each block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        """Start watching; `limit` is in seconds."""
        self._loop = loop
        self._limit = limit
        self._thread = threading.get_ident()
        self._at, self._ran, self._stack = time.monotonic(), time.thread_time(), ""
        loop.call_soon(self._beat)
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def _beat(self) -> None:
        now, ran = time.monotonic(), time.thread_time()
        wall, stack = now - self._at - BEAT_SECONDS, self._stack
        if stack and wall > self._limit:
            block = Block(1000 * wall, 1000 * (ran - self._ran), stack)
            print(MARK + msgspec.json.encode(block).decode(), flush=True)
        self._at, self._ran, self._stack = now, ran, ""
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _look(self) -> None:
        while not self._loop.is_closed():
            time.sleep(BEAT_SECONDS)
            if not self._stack and time.monotonic() - self._at > self._limit + BEAT_SECONDS:
                self._stack = _shown(sys._current_frames()[self._thread])


def _shown(frame: FrameType) -> str:
    """Return the innermost frames of a stack, only those of this repository if it has any."""
    frames = [(Path(one.f_code.co_filename), line, one.f_code.co_name) for one, line in traceback.walk_stack(frame)]
    lines = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, line, name in frames
        if path.is_relative_to(ROOT) and ".venv" not in path.parts and name not in ("run", "serve", "main", "<module>")
    ]
    path, line, name = frames[0]
    return " < ".join([f"{path.name}:{line} {name}", *lines[:SHOWN]])


def serve(limit: float) -> None:
    # Otherwise the watch waits 5 ms for the interpreter.
    sys.setswitchinterval(BEAT_SECONDS / 2)
    make = uvloop.new_event_loop

    def watched() -> asyncio.AbstractEventLoop:
        loop = make()
        loop.call_soon(LoopWatch, loop, limit)
        return loop

    uvloop.new_event_loop = watched  # type: ignore[assignment]  # The service makes its loop by this name.
    sys.argv = ["earshot", "serve"]
    earshot()


def table(blocks: list[Block]) -> str:
    """Return a line per stack, the most wall clock first."""
    by_stack: dict[str, list[Block]] = defaultdict(list)
    for block in blocks:
        by_stack[block.stack].append(block)
    lines = ["| times | longest | wall | ran | where |", "| --- | --- | --- | --- | --- |"]
    for stack, some in sorted(by_stack.items(), key=lambda item: -sum(block.wall for block in item[1])):
        wall, ran = sum(block.wall for block in some), sum(block.ran for block in some)
        lines.append(f"| {len(some)} | {max(block.wall for block in some):.1f} | {wall:.0f} | {ran:.0f} | {stack} |")
    return "\n".join(lines)


def main() -> None:
    """Load a watched service with live streams, and print what blocked its loop."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blocked", description=__doc__)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--ms", type=float, default=3, help="milliseconds that are too long (3)")
    chosen = parser.parse_args()
    watched = ("benchmarks.blocked", "serve", str(chosen.ms / 1000))
    with processes.temporary_directory() as directory, processes.service(directory / "data", watched) as server:
        processes.run_load(PacedPlan(server.target(), chosen.streams, 4))
        before = len(server.log.read_bytes())
        sample = processes.run_load(PacedPlan(server.target(), chosen.streams, chosen.seconds))
        said = server.log.read_bytes()[before:].decode().splitlines()
    lines = [line.partition(MARK)[2] for line in said if line.startswith(MARK)]
    print(f"{sample.done} windows in {sample.seconds:.0f} s; blocks of the loop over {chosen.ms:g} ms, milliseconds:\n")
    print(table([msgspec.json.decode(line, type=Block) for line in lines]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(float(sys.argv[2]))
    else:
        main()
