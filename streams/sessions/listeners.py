"""Listeners to one session, with levels and spectrogram, or to everything of a project on this node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from streams.folding.followers import Follower, Followers
from streams.folding.head_store import HeadStore
from streams.sessions.store import SessionStore
from streams.sessions.taps import Taps
from topics.alarms.alarms import Alarm
from topics.errors import Unavailable
from topics.ports.live import MET_WINDOWS, WindowSound

S = TypeVar("S", bound=HeadStore[Any])


class Tap:
    """A listener to one session. Implements `topics.ports.live.SoundTap`. Loop only."""

    def __init__(self, taps: Taps, *, project: str | None = None, session: str | None = None) -> None:
        self._taps = taps
        self._project, self._session = project, session
        self._open = True
        taps.listen(project, session)

    def window(self, session: str, number: int) -> WindowSound | None:
        return self._taps.window(session, number)

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._open:
            self._open = False
            self._taps.leave(self._project, self._session)


#: Alarms that wait for a reader; the oldest are left out.
MOST_ALARMS: Final = 1000


class ProjectFollower(Follower):
    """A listener to a project's sessions and jobs here. Implements `topics.ports.live.ProjectFollower`. Loop only."""

    def __init__(self, listeners: Listeners, project: str, tap: Tap) -> None:
        super().__init__(listeners, project)
        self._tap = tap
        self._changes: dict[str, int] = {}
        self._jobs: set[str] = set()
        self._alarms: dict[tuple[str, int], Alarm] = {}

    def note(self, session: str, first: int) -> None:
        """Note that a session changed; a reader new to it begins with its window `first`."""
        self._changes.setdefault(session, first)
        self.wake(False)

    def taken(self) -> Mapping[str, int]:
        changes, self._changes = self._changes, {}
        return changes

    def note_job(self, job: str) -> None:
        self._jobs.add(job)
        self.wake(False)

    def taken_jobs(self) -> Collection[str]:
        jobs, self._jobs = self._jobs, set()
        return jobs

    def note_alarm(self, alarm: Alarm) -> None:
        """Note that an alarm was made or has changed."""
        self._alarms[alarm.session, alarm.sequence] = alarm
        if len(self._alarms) > MOST_ALARMS:
            del self._alarms[next(iter(self._alarms))]
        self.wake(False)

    def taken_alarms(self) -> Collection[Alarm]:
        alarms, self._alarms = self._alarms, {}
        return alarms.values()

    def window(self, session: str, number: int) -> WindowSound | None:
        return self._tap.window(session, number)

    def close(self) -> None:
        """Stop following and listening. Idempotent."""
        super().close()
        self._tap.close()


class Listeners(Followers):
    """The listeners on this node, by project. Loop only."""

    def __init__(self, taps: Taps, store_of: Callable[[str], SessionStore]) -> None:
        """Read sessions from the store that `store_of` returns; it raises Unavailable if there is none."""
        super().__init__()
        self._taps = taps
        self._store_of = store_of

    def listen(self, session: str) -> Tap:
        return Tap(self._taps, session=session)

    def follow_project(self, project: str, session: str | None = None) -> ProjectFollower:
        """Listen to a project and, in more detail, to one of its sessions."""
        follower = ProjectFollower(self, project, Tap(self._taps, project=project, session=session))
        self._add(project, follower)
        return follower

    def note_alarm(self, alarm: Alarm) -> None:
        for follower in self._of(alarm.project):
            follower.note_alarm(alarm)

    def note(self, ids: Iterable[str]) -> None:
        """Notify the projects' listeners of changed sessions; a deleted session's change goes to everybody."""
        for id, store in self._readable(ids, self._store_of):
            head, project = store.peek(id), store.project(id)
            first = 0 if head is None else max(0, head.windows - MET_WINDOWS)
            for follower in self._of(project):
                follower.note(id, first)

    def note_jobs(self, ids: Iterable[str], store_of: Callable[[str], HeadStore[Any]]) -> None:
        """Notify the projects' listeners of changed jobs; for a deleted or uploading job, notify everybody."""
        for id, store in self._readable(ids, store_of):
            for follower in self._of(store.project(id)):
                follower.note_job(id)

    def _readable(self, ids: Iterable[str], store_of: Callable[[str], S]) -> Iterator[tuple[str, S]]:
        for id in ids if self._by_id else ():
            with suppress(Unavailable):
                if (store := store_of(id)).readable(id):
                    yield id, store

    def _of(self, project: str | None) -> list[ProjectFollower]:
        chosen = self._by_id.values() if project is None else [self._by_id.get(project, set())]
        return [one for followers in chosen for one in followers if isinstance(one, ProjectFollower)]
