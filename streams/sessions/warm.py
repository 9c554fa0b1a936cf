"""The sessions that are warm: what is held in memory of those that were analysed lately."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec

from streams.models.manifest import Manifest
from streams.sessions.files import FileSessions, SessionFile
from streams.sessions.ready import ReadySessions
from streams.workers.process import Deaths
from streams.workers.session import WorkerSession

#: Sessions, some 27 KiB each, whose analysis stays in memory between steps however long they pause, and such that have
#: work or had some in the last seconds. One that was closed reads its last chunks from the log again.
KEPT: Final = 1024
MOST: Final = 16 * KEPT
PAUSE_SECONDS: Final = 2.0


class ActiveSession(msgspec.Struct):
    """What this process holds in memory of a session that was analysed lately: the step that is next finds it there."""

    id: str
    project: str
    #: The manifest of the model that scores the session.
    model: Manifest | None = None
    #: The session's state in a worker, and the file that it is read from.
    analysis: WorkerSession | None = None
    file: SessionFile | None = None
    #: The `keep` of the last result that was emitted: chunk rows below it are dropped already.
    dropped: int = 0
    ended: bool = False
    #: Attempts in a row that failed, and those of them that count against the session: not for want of the service.
    retries: int = 0
    failures: int = 0
    #: How far it was when it last failed so, or its worker died: steps that lead there again are no success.
    failed_at: tuple[int, int] | None = None
    #: Workers that have died while they had a step of it, without its getting further.
    deaths: Deaths = msgspec.field(default_factory=Deaths)
    #: When its last step began, monotonic.
    stepped: float = 0.0


class WarmSessions:
    """The sessions that were analysed lately, and what they hold. Loop only."""

    def __init__(self, ready: ReadySessions, files: FileSessions) -> None:
        self._ready = ready
        self._files = files
        #: The one whose step was longest ago first.
        self._active: OrderedDict[str, ActiveSession] = OrderedDict()

    def __iter__(self) -> Iterator[str]:
        return iter(self._active)

    def get(self, session: str) -> ActiveSession | None:
        return self._active.get(session)

    def enter(self, session: str, project: Callable[[str], str]) -> ActiveSession:
        """Return what is held of a session whose step begins; `project` tells whose one is of which nothing is."""
        active = self._active.get(session)
        if active is None:
            active = self._active[session] = ActiveSession(session, project(session))
        self._active.move_to_end(session)
        active.stepped = time.monotonic()
        if len(self._active) > MOST:
            oldest = next(iter(self._active))
            if not self._ready.is_running(oldest):
                self.close(self._active.pop(oldest))
        return active

    def drop(self, session: str) -> ActiveSession | None:
        """Hold nothing of a session any more; what it had open is still to be closed."""
        return self._active.pop(session, None)

    def close(self, active: ActiveSession) -> None:
        """Close what a session has open; its next step begins anew. Allowed twice."""
        if active.analysis is not None:
            active.analysis.close()
            active.analysis = None
        if active.file is not None:
            self._files.close_file(active.file)
            active.file = None

    def tidy(self) -> None:
        """Close what has had no work for a while, beyond so many."""
        before = time.monotonic() - PAUSE_SECONDS
        for session, active in list(islice(self._active.items(), max(0, len(self._active) - KEPT))):
            if active.stepped < before and not self._ready.has(session):
                self.close(self._active.pop(session))
