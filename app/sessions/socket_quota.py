"""The sockets of this node: each session's sender, each project's number of sockets, and the keys that have ended."""

import asyncio
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, Protocol

from app.http.bodies import BodyQuota
from app.http.call import KeyEnd
from app.http.holder_quota import HolderQuota, Places
from app.http.turns import LoopTurns
from topics.errors import EarshotError
from topics.tally import Tally

#: Sockets of one project and of one organization on a node: half, and three quarters, of a node's default connections.
PROJECT_SOCKETS: Final = 8192
ORGANIZATION_SOCKETS: Final = 12288
RETRY_SECONDS: Final = 10
#: Seconds between attempts to append when the log had no room.
ROOM_SECONDS: Final = 0.02
FULL: Final = f"the project has {PROJECT_SOCKETS} sockets here, its limit: close one"
ORGANIZATION_FULL: Final = f"the organization has {ORGANIZATION_SOCKETS} sockets here, its limit: close one"


class Sender(Protocol):
    """A socket that sends for a session."""

    def fail(self, status: int, text: str, fields: dict[str, int] | None = None) -> None:
        """Close with the close code of a status; `fields` are added to the error."""

    def refuse_error(self, error: EarshotError) -> None:
        """Close because of an error."""

    def refuse_audio(self) -> None:
        """Ignore further audio, because the session is read-only, and close after the last event."""

    def warn(self, text: str) -> None:
        """Tell the client what is left out."""

    def leave(self) -> None:
        """The session continues on another node."""

    def answered(self) -> None:
        """A chunk, or the end of the audio, has its verdict."""

    def replace(self) -> None:
        """Close, because another socket now sends for the session."""

    async def drained(self) -> None:
        """Return once nothing of it can be stored any more."""


class SocketQuota:
    """Counts the sockets of projects, and knows the sender of each session. Loop only."""

    def __init__(self, waiting_bytes: int, turns: LoopTurns, tally: Tally | None = None) -> None:
        """Hold at most `waiting_bytes` of chunks that wait for room in the log; send in `turns`."""
        organization = Places(ORGANIZATION_SOCKETS, ORGANIZATION_FULL)
        # The limit of connections bounds them all.
        everybody = Places(sys.maxsize, "")
        self.places = HolderQuota(Places(PROJECT_SOCKETS, FULL), organization, everybody, RETRY_SECONDS, tally)
        self._senders: dict[str, Sender] = {}
        self.line = QuotaLine(BodyQuota(waiting_bytes))
        self.turns = turns

    def __len__(self) -> int:
        """Return the number of sessions whose audio comes by a socket."""
        return len(self._senders)

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


class QuotaLine:
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
