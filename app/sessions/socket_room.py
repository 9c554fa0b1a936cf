"""The sockets of this node: each session's sender, each project's number of sockets, and the keys that have ended."""

import asyncio
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, Protocol

from app.http.bodies import BodyQuota
from app.http.call import KeyEnd
from app.http.holder_quota import HolderQuota
from topics.errors import EarshotError
from topics.turns import Turns

#: Sockets of one project on a node: half of a node's default connections.
PROJECT_SOCKETS: Final = 8192
RETRY_SECONDS: Final = 10
#: Seconds between attempts to append when the log had no room.
ROOM_SECONDS: Final = 0.02
#: Seconds that sockets may send in one iteration of the event loop: each takes some 50 us, and 1 ms to catch up.
SENDING_SECONDS: Final = 0.001
FULL: Final = f"the project has {PROJECT_SOCKETS} sockets here, its limit: close one"


class Sender(Protocol):
    """A socket that sends for a session."""

    def fail(self, status: int, text: str, fields: dict[str, int] | None = None) -> None:
        """Close with the close code of a status; `fields` are added to the error."""

    def refuse_error(self, error: EarshotError) -> None:
        """Close because of an error."""

    def leave(self) -> None:
        """The session continues on another node."""

    def answered(self) -> None:
        """A chunk, or the end of the audio, has its verdict."""

    def replace(self) -> None:
        """Close, because another socket now sends for the session."""

    async def drained(self) -> None:
        """Return once nothing of it can be stored any more."""


class SocketRoom:
    """Counts the sockets of projects, and knows the sender of each session. Loop only."""

    def __init__(self, waiting_bytes: int) -> None:
        """Hold at most `waiting_bytes` of chunks that wait for room in the log."""
        self.places = HolderQuota(PROJECT_SOCKETS, sys.maxsize, FULL, FULL, RETRY_SECONDS)
        self._senders: dict[str, Sender] = {}
        self.line = RoomLine(BodyQuota(waiting_bytes))
        self.turns = SendingTurns()

    def enter(self, session: str, sender: Sender) -> Sender | None:
        """Make this the sender of a session; close and return the previous one."""
        before = self._senders.get(session)
        self._senders[session] = sender
        if before is not None:
            before.replace()
        return before

    def leave(self, session: str, sender: Sender) -> None:
        """Remove a drained sender; ignored if it was replaced."""
        if self._senders.get(session) is sender:
            del self._senders[session]


class SendingTurns:
    """Spreads what sockets send over iterations of the event loop, in turn by project. Loop only.

    Otherwise one event of a session with thousands of listeners would hold the loop for a tenth of a second.
    """

    def __init__(self) -> None:
        self._turns: Turns[Callable[[], None]] = Turns()
        self._scheduled = False

    def put(self, project: str, send: Callable[[], None]) -> None:
        """Call `send`, which must not raise, when it is the project's turn."""
        self._turns.put(project, send)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        until = time.perf_counter() + SENDING_SECONDS
        while (send := self._turns.take()) is not None:
            send()
            if time.perf_counter() >= until:
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._scheduled = False


class RoomLine:
    """Each project's sockets that wait for room in the log, first come, first served. Loop only."""

    def __init__(self, memory: BodyQuota) -> None:
        #: For the chunks that wait.
        self.memory = memory
        self._lines: dict[str, deque[Callable[[], bool]]] = {}

    def waiting(self, project: str) -> int:
        return len(self._lines.get(project, ()))

    def join(self, project: str, go_on: Callable[[], bool]) -> None:
        """Wait: `go_on` is called until it returns True."""
        if (line := self._lines.get(project)) is None:
            line = self._lines[project] = deque()
            self._later(project)
        line.append(go_on)

    def _later(self, project: str) -> None:
        asyncio.get_running_loop().call_later(ROOM_SECONDS, self._advance, project)

    def _advance(self, project: str) -> None:
        line = self._lines[project]
        while line and line[0]():
            line.popleft()
        if line:
            self._later(project)
        else:
            del self._lines[project]


class KeyWatch:
    """Notifies sockets when the keys that opened them have ended: one task for each key."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, set[Callable[[EarshotError], None]]] = defaultdict(set)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, key: str, ended: KeyEnd, call: Callable[[EarshotError], None]) -> None:
        """Call `call` with the reason once `ended` returns, which happens when the key ends."""
        self._calls[key].add(call)
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._wait(key, ended))

    def remove(self, key: str, call: Callable[[EarshotError], None]) -> None:
        """Remove a call; idempotent."""
        calls = self._calls.get(key)
        if calls is None:
            return
        calls.discard(call)
        if not calls:
            del self._calls[key]
            self._tasks.pop(key).cancel()

    async def _wait(self, key: str, ended: KeyEnd) -> None:
        why = await ended()
        del self._tasks[key]
        for call in self._calls.pop(key, set()):
            call(why)
