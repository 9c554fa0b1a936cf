"""A place for one worker, with the requests waiting for it."""

import asyncio
import time
from typing import Final

from streams.workers.process import Call, WorkerProcess
from topics.turns import Sharing, Turns

#: Most work in one worker at a time: seconds of its processor time for live audio of one project, or of several; and
#: segments. Other requests wait here in turn. With less, the worker would idle until the loop's next turn.
ALONE_IN_WORK: Final = 0.04
SHARED_IN_WORK: Final = 0.015
SEGMENTS_IN_WORK: Final = 2
#: How long after another project's request a worker counts as shared.
SHARED_SECONDS: Final = 5.0


class Place:
    """A worker, if it is running, and the requests waiting for it, in turn by project. Loop only."""

    def __init__(self, owner: str | None) -> None:
        """`owner` is the only project that the worker serves; None if it serves all."""
        self.owner = owner
        self.process: WorkerProcess | None = None
        self.starting: asyncio.Task[None] | None = None
        self._steps: Turns[Call] = Turns()
        self._segments: Turns[Call] = Turns()
        #: Number of waiting requests.
        self.count = 0
        self.deaths = 0
        #: When it last got work, and since when it has its worker, monotonic.
        self.used = self.since = time.monotonic()
        self._sharing = Sharing(SHARED_SECONDS)

    @property
    def seated(self) -> bool:
        return self.process is not None or self.starting is not None

    @property
    def load(self) -> tuple[float, int]:
        """Return the number of requests, waiting or in work, and the number of sessions with state."""
        process = self.process
        return self.count + (0 if process is None else len(process)), 0 if process is None else len(process.sessions)

    def put(self, project: str, call: Call) -> None:
        (self._segments if call.background else self._steps).put(project, call)
        self.count += 1
        self.used = time.monotonic()
        if not call.background:
            self._sharing.note(project, self.used)

    def take(self, waiting: Turns[Call]) -> None:
        """Dequeue the request that `next` returned with this queue; a moment later, it could return another."""
        waiting.take()
        self.count -= 1

    def next(self) -> tuple[Turns[Call], Call] | None:
        """Return the worker's next request with its queue, for `take`; None if it gets nothing now."""
        if (process := self.process) is None:
            return None
        heads: list[tuple[Turns[Call], Call]] = []
        for waiting in (self._steps, self._segments):
            while (call := waiting.peek()) is not None:
                if not call.answer.done():
                    heads.append((waiting, call))
                    break
                self.take(waiting)  # The caller is gone.
        for head in heads:
            if head[1].alone:
                return None if len(process) else head
        return next((head for head in heads if self._has_room(process, head[1])), None)

    def _has_room(self, process: WorkerProcess, call: Call) -> bool:
        if not len(process):
            return True
        if not process.has_slot(call) or process.has_alone:
            return False
        if call.background:
            return process.segments < SEGMENTS_IN_WORK
        most = SHARED_IN_WORK if self._sharing.is_shared(time.monotonic()) else ALONE_IN_WORK
        return not process.seconds or (process.seconds + call.seconds) * process.cost <= most
