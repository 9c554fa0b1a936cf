"""A slot for one worker, with the requests waiting for it."""

import asyncio
import time
from typing import BinaryIO, Final

from streams.processes.child import Deadlines
from streams.workers.process import Call, WorkerProcess
from topics.turns import Sharing, Turns

#: Most work in one worker at a time: seconds of its processor time for live audio of one project, or of several. Other
#: requests wait here in turn. With less, the worker would idle until the loop's next turn.
ALONE_IN_WORK: Final = 0.04
SHARED_IN_WORK: Final = 0.015
#: A worker with at most this recent load, seconds in work and sessions gets further sessions before others do.
LIGHT_LOAD: Final = 0.5
LIGHT_IN_WORK: Final = 0.005
LIGHT_SESSIONS: Final = 2048


class WorkerSlot:
    """A worker, if it is running, and the requests waiting for it, in turn by project. Loop only."""

    def __init__(
        self,
        owner: str | None,
        deadlines: Deadlines,
        sharing: Sharing,
        file: BinaryIO | None = None,
        nice: int = 0,
    ) -> None:
        """`owner` is the only project that the worker serves; None if it serves all.

        The worker gets `file`, if there is one, and adds `nice` to its nice value.
        """
        self.owner = owner
        self.deadlines = deadlines
        self.file = file
        self.nice = nice
        self.process: WorkerProcess | None = None
        self.starting: asyncio.Task[None] | None = None
        self._waiting: Turns[Call] = Turns()
        #: Number of waiting requests.
        self.count = 0
        self.deaths = 0
        #: When it last got work, and since when it has its worker, monotonic.
        self.used = self.since = time.monotonic()
        self._sharing = sharing

    @property
    def is_owned(self) -> bool:
        """Whether the worker serves one project, as long as no other waits for one."""
        return self.owner is not None and self.file is None

    @property
    def seated(self) -> bool:
        return self.process is not None or self.starting is not None

    @property
    def load(self) -> tuple[float, int]:
        """Return the number of requests, waiting or in work, and the number of sessions with state."""
        process = self.process
        return self.count + (0 if process is None else len(process)), 0 if process is None else len(process.sessions)

    @property
    def is_light(self) -> bool:
        """Whether the worker has little to do, and memory for further sessions."""
        process = self.process
        if process is None or self.count or process.load > LIGHT_LOAD or len(process.sessions) >= LIGHT_SESSIONS:
            return False
        return process.seconds * process.cost <= LIGHT_IN_WORK

    def put(self, project: str, call: Call) -> None:
        self._waiting.put(project, call)
        self.count += 1
        self.used = time.monotonic()

    def take(self) -> Call | None:
        """Dequeue the next request; None if there is none."""
        if (call := self._waiting.take()) is not None:
            self.count -= 1
        return call

    def next(self) -> Call | None:
        """Return the worker's next request, for `take`; None if it gets nothing now."""
        if (process := self.process) is None:
            return None
        while (call := self._waiting.peek()) is not None:
            if not call.answer.done():
                return call if self._has_room(process, call) else None
            self.take()  # The caller is gone.
        return None

    def _has_room(self, process: WorkerProcess, call: Call) -> bool:
        if not len(process):
            return True
        if call.alone or process.has_alone or not process.has_slot(call):
            return False
        most = SHARED_IN_WORK if self.owner is None and self._sharing.is_shared(time.monotonic()) else ALONE_IN_WORK
        return not process.seconds or (process.seconds + call.seconds) * process.cost <= most
