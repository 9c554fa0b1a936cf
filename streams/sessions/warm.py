"""Warm sessions: the state in memory of recently analysed sessions."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec

from streams.audio.levels import SoundMeter
from streams.models.manifest import Manifest
from streams.processes.deaths import Deaths
from streams.sessions.files import FileSessions, SessionFile
from streams.sessions.ready import ReadySessions
from streams.workers.session import WorkerSession
from topics import media
from topics.media import Media
from topics.sessions.records import Opened

#: Idle sessions kept in memory (27 KiB each), and the limit on all. An evicted session reads its last chunks from the
#: log again.
IDLE_SESSIONS: Final = 1024
MAX_SESSIONS: Final = 16 * IDLE_SESSIONS
PAUSE_SECONDS: Final = 2.0


class ActiveSession(msgspec.Struct):
    """The state in memory of a recently analysed session, for its next step."""

    id: str
    project: str
    model: Manifest | None = None
    declared: Media | None = None
    #: The session's state in a worker, and its file if it is a file session.
    analysis: WorkerSession | None = None
    file: SessionFile | None = None
    #: Its next step has a tick of its own, because it is encoded, long, or must be read from the log.
    apart: bool = True
    #: Index of the next window to write.
    windows: int = 0
    ended: bool = False
    #: Measures its level, if a rule of alarms needs it.
    meter: SoundMeter | None = None
    #: Consecutive failed attempts, and those that count against the session because the service was available.
    retries: int = 0
    failures: int = 0
    #: Its progress at the last such failure or worker's death; reaching it again is no success.
    failed_at: tuple[int, int] | None = None
    #: Deaths of workers during its steps since it last made progress.
    deaths: Deaths = msgspec.field(default_factory=Deaths)
    #: When its last step began, monotonic.
    stepped: float = 0.0

    def media(self, opened: Opened) -> Media:
        """Return the parsed content type of its opening."""
        if self.declared is None:
            self.declared = media.parse(opened.content_type)
        return self.declared


class WarmSessions:
    """The recently analysed sessions with their state. Loop only."""

    def __init__(self, ready: ReadySessions, files: FileSessions) -> None:
        self._ready = ready
        self._files = files
        #: Least recently stepped first.
        self._active: OrderedDict[str, ActiveSession] = OrderedDict()

    def __iter__(self) -> Iterator[str]:
        return iter(self._active)

    def get(self, session: str) -> ActiveSession | None:
        return self._active.get(session)

    def enter(self, session: str, project: Callable[[str], str]) -> ActiveSession:
        """Return a session's state for a beginning step, creating it with `project` if there is none."""
        active = self._active.get(session)
        if active is None:
            active = self._active[session] = ActiveSession(session, project(session))
        self._active.move_to_end(session)
        active.stepped = time.monotonic()
        if len(self._active) > MAX_SESSIONS:
            oldest = next(iter(self._active))
            if not self._ready.is_running(oldest):
                self.close(self._active.pop(oldest))
        return active

    def drop(self, session: str) -> ActiveSession | None:
        """Remove a session's state; the caller still has to close it."""
        return self._active.pop(session, None)

    def close(self, active: ActiveSession) -> None:
        """Close what a session has open; its next step begins anew. Idempotent."""
        if active.analysis is not None:
            active.analysis.close()
            active.analysis = None
        if active.file is not None:
            self._files.close_file(active.file)
            active.file = None

    def tidy(self) -> None:
        """Close the least recently stepped sessions beyond `IDLE_SESSIONS` that are idle."""
        before = time.monotonic() - PAUSE_SECONDS
        for session, active in list(islice(self._active.items(), max(0, len(self._active) - IDLE_SESSIONS))):
            if active.stepped < before and not self._ready.has(session):
                self.close(self._active.pop(session))
