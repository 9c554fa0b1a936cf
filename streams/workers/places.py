"""A place for a worker, and the requests that wait for the worker in it."""

import asyncio
import time
from typing import Final

from streams.turns import Turns
from streams.workers.process import Call, WorkerProcess

#: What is in work in one worker: seconds of audio, or one step; and segments. What waits here is taken in turn.
STEPS_IN_WORK_S: Final = 2.0
SEGMENTS_IN_WORK: Final = 2


class Place:
    """A worker, if there is one now, and the requests that wait for it, in turn by project. Loop only."""

    def __init__(self, owner: str | None) -> None:
        """`owner` is the project whose worker it is, None where it serves all."""
        self.owner = owner
        self.process: WorkerProcess | None = None
        self.starting: asyncio.Task[None] | None = None
        self._steps: Turns[Call] = Turns()
        self._segments: Turns[Call] = Turns()
        #: Requests that wait.
        self.count = 0
        #: Workers that have died here.
        self.deaths = 0
        #: When it last got work, and since when it has a worker, monotonic.
        self.used = self.since = time.monotonic()

    @property
    def seated(self) -> bool:
        """True where there is a worker, or will be."""
        return self.process is not None or self.starting is not None

    @property
    def load(self) -> tuple[float, int]:
        """Return what there is to do, and how many sessions are kept."""
        process = self.process
        return self.count + (0 if process is None else len(process)), 0 if process is None else len(process.sessions)

    def put(self, project: str, call: Call) -> None:
        """Let a request wait for the project's turn."""
        (self._segments if call.background else self._steps).put(project, call)
        self.count += 1
        self.used = time.monotonic()

    def peek(self) -> Call | None:
        """Return what the worker gets next, None if it gets nothing now."""
        waiting = self._next()
        return None if waiting is None else waiting.peek()

    def take(self) -> None:
        """What `peek` returned waits no longer."""
        waiting = self._next()
        assert waiting is not None
        waiting.take()
        self.count -= 1

    def _next(self) -> Turns[Call] | None:
        if (process := self.process) is None:
            return None
        queues = self._steps, self._segments
        for waiting in queues:
            while (call := waiting.peek()) is not None and call.answer.done():  # Nobody waits any more.
                waiting.take()
                self.count -= 1
        heads = [(waiting, call) for waiting in queues if (call := waiting.peek()) is not None]
        for waiting, call in heads:
            if call.alone:
                return None if len(process) else waiting
        return next((waiting for waiting, call in heads if _has_room(process, call)), None)


def _has_room(process: WorkerProcess, call: Call) -> bool:
    if not len(process):
        return True
    if not process.has_slot or process.has_alone:
        return False
    if call.background:
        return process.segments < SEGMENTS_IN_WORK
    return not process.seconds or process.seconds + call.seconds <= STEPS_IN_WORK_S
