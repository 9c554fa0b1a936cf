"""The edge's access to sessions and jobs: it reads rows of owned partitions and sends commands to the log."""

import heapq
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import xxhash

from streams.audio import raw_check
from streams.folding.followers import Follower, Followers, Subscription
from streams.folding.head_store import H, HeadStore, Listed
from streams.jobs.job_store import JobStore
from streams.jobs.pictures import JobPictures
from streams.jobs.recording import NOT_KEPT, JobRecordings
from streams.models.loaded_models import LoadedModels
from streams.node.deleted_projects import DeletedProjects
from streams.node.owners import Owners
from streams.node.sender import RecordSender
from streams.sessions.intake import SessionIntake
from streams.sessions.listeners import Listeners, ProjectFollower, Tap
from streams.sessions.store import SessionStore
from topics.alarms.tags import Classes
from topics.catalog import COMMANDS, JOB_COMMANDS
from topics.choices import Choices
from topics.errors import AudioError, Damaged, RecordError, Unauthorized, Unavailable
from topics.folding import Answer, Verdict
from topics.hearing import Hearing, OwnSound
from topics.jobs import rows as job_rows
from topics.jobs.options import Service
from topics.jobs.records import Accepted, JobCommand, Part
from topics.ports.jobs import JobView
from topics.ports.lists import Coverage, ListQuery
from topics.ports.pictures import Picture
from topics.ports.sessions import SessionView, Windows
from topics.sessions import rows as session_rows
from topics.sessions.capture import CaptureTime, SourceNote
from topics.sessions.records import Opened, SessionCommand
from topics.sessions.rows import BLOCK_WINDOWS
from topics.sessions.rules import SessionState
from topics.tally import Published, Tally

#: Seconds after which a project at its limit of sessions or jobs may retry.
RETRY_SECONDS: Final = 10


class _Port:
    """Shared base of the ports of sessions and jobs. Loop only."""

    def __init__(
        self,
        owners: Owners,
        sender: RecordSender,
        followers: Followers,
        models: LoadedModels,
        deleted: DeletedProjects,
        limit: int,
        tally: Tally | None,
    ) -> None:
        """Allow each project at most `limit` counted (`Head.counted`) sessions or jobs at a time.

        `tally` has those of other lanes, if there are any.
        """
        self._counts = Published(tally)
        self._owners = owners
        self._sender = sender
        self._followers = followers
        self._models = models
        self._deleted = deleted
        self._limit = limit

    def new_id(self) -> str:
        return self._owners.new_id()

    def host(self) -> str | None:
        return self._owners.host()

    def owner(self, id: str) -> str | None:
        return self._owners.url(id)

    def is_moving(self, id: str) -> bool:
        return self._owners.is_moving(id)

    def plan(self) -> bytes:
        return self._owners.plan()

    async def owner_changed(self) -> None:
        await self._owners.changed()

    def coverage(self) -> Coverage:
        return self._owners.coverage()

    def follow(self, id: str) -> Follower:
        return self._followers.follow(id)

    def hearing(self, name: str | None, own: Sequence[OwnSound], choices: Choices) -> tuple[str, Hearing]:
        return self._models.hearing(name, own, choices)

    def _stores(self) -> list[HeadStore[Any]]:
        raise NotImplementedError

    def _count(self, project: str) -> int:
        return sum(store.projects.count(project) for store in self._stores())

    def _check_room(self, project: str, noun: str) -> None:
        own = self._count(project)
        if own + self._counts.others(project) >= self._limit:
            raise Unavailable(f"the project has {self._limit} {noun} here, its limit: wait", RETRY_SECONDS)
        self._counts.publish(project, own + 1)

    def publish(self) -> None:
        """Tell the other lanes of what has ended here."""
        self._counts.refresh(self._count)

    def _check_project(self, project: str) -> None:
        """Refuse what a request that began before its project was deleted would create."""
        if project in self._deleted:
            raise Unauthorized("the project was deleted")

    def model(self) -> str:
        return self._models.current.manifest.model_id


class SessionsPort(_Port):
    """Implements `topics.ports.sessions.Sessions`. Loop only."""

    check_beginning = staticmethod(raw_check.check_beginning)
    check_floats = staticmethod(raw_check.check_floats)

    def __init__(
        self,
        owners: Owners,
        sender: RecordSender,
        followers: Followers,
        models: LoadedModels,
        deleted: DeletedProjects,
        limit: int,
        tally: Tally | None,
        listeners: Listeners,
        intake: SessionIntake,
    ) -> None:
        super().__init__(owners, sender, followers, models, deleted, limit, tally)
        self._listeners = listeners
        self._intake = intake

    def listen(self, session: str) -> Tap:
        return self._listeners.listen(session)

    def follow_project(self, project: str, session: str | None = None) -> ProjectFollower:
        return self._listeners.follow_project(project, session)

    def subscribe(self, id: str, woken: Callable[[bool], None]) -> Subscription:
        return self._followers.subscribe(id, woken)

    def graph(self, model: str) -> str | None:
        return self._models.graph(model)

    def tags(self, model: str) -> Sequence[str]:
        return self._models.tags(model)

    def admit(self, project: str) -> None:
        self._check_room(project, "open sessions")

    def _stores(self) -> list[HeadStore[Any]]:
        return [owner.sessions for owner in self._owners if owner.has_table]

    def listed(self, query: ListQuery) -> Sequence[tuple[int, str, SessionView]]:
        found = _newest([owner.sessions for owner in self._owners.all_for_reading()], query)
        views = ((entry, session_rows.opened(entry.request)) for entry in found)
        return [(entry.time_ms, entry.id, SessionView(opened, entry.head)) for entry, opened in views if opened]

    async def submit(self, session: str, command: SessionCommand) -> Verdict:
        if isinstance(command, Opened):
            self._check_project(command.project)
        return await self._sender.submit(COMMANDS, session, command)

    def send(self, session: str, command: SessionCommand, answered: Callable[[Answer], None]) -> None:
        self._sender.send(COMMANDS, session, command, answered)

    def same_audio(self, session: str, number: int, data: bytes) -> bool:
        digest = self._intake.digest(self._owners.serving(session).sessions, session, number)
        return digest == xxhash.xxh3_128_digest(data)

    def _readable(self, session: str) -> SessionStore:
        """Return the store that has a session, if it may be shown now."""
        return self._owners.for_reading(session).sessions

    def view(self, session: str) -> SessionView | None:
        store = self._readable(session)
        try:
            head = store.head(session)
            gone = head is None or head.state is SessionState.DELETED
            opened = None if gone else store.opened(session)
        except RecordError as error:
            raise Damaged from error
        if head is None or opened is None or opened.project in self._deleted:
            return None
        return SessionView(opened, head)

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        store = self._readable(session)
        start = first // BLOCK_WINDOWS
        pieces: list[Windows] = []
        position = start * BLOCK_WINDOWS
        for block in store.blocks(session, start, (first + count - 1) // BLOCK_WINDOWS + 1):
            tags = len(self.tags(block.model))
            begin = max(first, position) - position
            scores = block.scores[begin * tags : (first + count - position) * tags]
            if scores:
                pieces.append(Windows(position + begin, block.model, scores))
            position += BLOCK_WINDOWS
        return pieces

    def time_of(self, session: str, position_ms: int) -> CaptureTime:
        return self._readable(session).time_of(session, position_ms)

    def notes(self, session: str, first: int, stop: int) -> Sequence[SourceNote]:
        return self._readable(session).notes(session, first, stop)

    def embeddings(self, session: str, first: int, stop: int) -> Sequence[bytes]:
        store, number = self._readable(session), first // BLOCK_WINDOWS
        found: list[bytes] = []
        for block in store.blocks(session, number, -(-stop // BLOCK_WINDOWS)):
            windows = len(block.scores) // len(self.tags(block.model))
            size = len(block.embeddings) // windows
            found += [block.embeddings[size * window : size * (window + 1)] for window in range(windows)]
        return found[first - number * BLOCK_WINDOWS :][: stop - first]

    def official_tags(self) -> Sequence[str]:
        return self._models.tags(self.model())

    def classes(self) -> Classes:
        return self._models.classes(self.model())


class JobsPort(_Port):
    """Implements `topics.ports.jobs.Jobs`. Loop only."""

    def __init__(
        self,
        owners: Owners,
        sender: RecordSender,
        followers: Followers,
        models: LoadedModels,
        deleted: DeletedProjects,
        limit: int,
        tally: Tally | None,
        recordings: JobRecordings,
        pictures: JobPictures,
    ) -> None:
        super().__init__(owners, sender, followers, models, deleted, limit, tally)
        self._recordings = recordings
        self._pictures = pictures

    def recording(self, job: str) -> AbstractAsyncContextManager[int]:
        return self._recordings.open(job)

    def audio(self, job: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        return self._recordings.read(job, start, end)

    def admit(self, project: str) -> None:
        self._check_room(project, "unfinished jobs")

    def _stores(self) -> list[HeadStore[Any]]:
        return [owner.jobs for owner in self._owners if owner.has_table]

    async def upload(self, job: str, part: Part, project: str) -> None:
        await self._sender.upload(JOB_COMMANDS, job, part, project)

    async def submit(self, job: str, command: JobCommand) -> Verdict:
        if isinstance(command, Accepted):
            self._check_project(command.project)
        return await self._sender.submit(JOB_COMMANDS, job, command)

    def _readable(self, job: str) -> JobStore:
        """Return the store that has a job, if it may be shown now."""
        return self._owners.for_reading(job).jobs

    def view(self, job: str) -> JobView | None:
        store = self._readable(job)
        try:
            head = store.head(job)
            accepted = store.accepted(job) if head is not None and head.visible else None
        except RecordError as error:
            raise Damaged from error
        if head is None or accepted is None or accepted.project in self._deleted:
            return None
        return JobView(accepted, head)

    def listed(self, query: ListQuery) -> Sequence[tuple[int, str, JobView]]:
        found = _newest([owner.jobs for owner in self._owners.all_for_reading()], query)
        views = ((entry, job_rows.accepted(entry.request)) for entry in found)
        return [(entry.time_ms, entry.id, JobView(accepted, entry.head)) for entry, accepted in views if accepted]

    def portion(self, job: str, service: Service, number: int) -> bytes | None:
        return self._readable(job).portion(job, service, number)

    async def picture(self, job: str, wait_s: float) -> Picture:
        view = self.view(job)
        if view is None or not view.head.can_be_heard:
            raise AudioError(NOT_KEPT)
        picture = await self._pictures.picture(job, view, wait_s)
        self._owners.for_reading(job)
        return picture


def _newest(stores: Iterable[HeadStore[H]], query: ListQuery) -> Iterator[Listed[H]]:
    merged = heapq.merge(*(store.listed(query) for store in stores), key=attrgetter("place"))
    return islice(merged, query.count)
