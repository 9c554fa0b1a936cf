"""The work of a node for its sessions: the fold of commands, the analyser, the writer of windows and the biller."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Final

import mode
import structlog
from faust import App

from streams.alarms.outbox import AlarmOutbox, erase_project
from streams.alarms.watcher import Watcher
from streams.folding.fold import Changes
from streams.folding.followers import Followers
from streams.log import StretchReader
from streams.models.loaded_models import LoadedModels
from streams.node.options import NodeOptions
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.node.sender import RecordSender
from streams.node.workload import Workload
from streams.sessions.analyser import Analyser
from streams.sessions.audio import AudioCache
from streams.sessions.biller import SessionBiller
from streams.sessions.intake import SessionIntake
from streams.sessions.listeners import Listeners
from streams.sessions.source_watch import SourceWatch
from streams.sessions.store import SessionStore
from streams.sessions.window_writer import WindowWriter
from streams.workers.workers import Workers
from topics import keys
from topics.catalog import COMMANDS
from topics.errors import NotOwned
from topics.ports.alarms import Rules
from topics.ports.ledger import Ledger
from topics.ports.lists import ListQuery
from topics.sessions.records import Deleted, Expired, Failed, Metered
from topics.sessions.rules import SessionHead, SessionState
from topics.times import DAY_MS

log = structlog.get_logger(__name__)

#: Service time (ms) for which the analysis of a session may stand still.
STANDSTILL_MS: Final = DAY_MS
#: Open sessions of a project that are looked at for their names: so many keep the loop for 2 ms.
MOST_LOOKED_AT: Final = 256
STOOD_STILL: Final = "the analysis stood still for 24 hours and was given up: the model or a decoder was missing"


class SessionWorkload(Workload[SessionStore]):
    """Connects the intake, analyser, writer and biller of a node's sessions. Loop only."""

    commands = COMMANDS

    def __init__(
        self,
        app: App,
        options: NodeOptions,
        owners: Owners,
        sender: RecordSender,
        followers: Followers,
        models: LoadedModels,
        reader: StretchReader,
        workers: Workers,
        ledger: Ledger | None,
        rules: Rules,
    ) -> None:
        idle_ms = int(options.idle_seconds * 1000)
        super().__init__(owners, sender, followers, idle_ms, STANDSTILL_MS)
        self.audio = AudioCache(options.audio_cache_bytes, reader, self._needed)
        self.intake = SessionIntake(sender.verdicts, idle_ms, self.announce, self.audio)
        self.folds = {COMMANDS: self.intake}
        self.outbox = AlarmOutbox(self.serving, self.all_serving, self.for_reading, self.all_for_reading)
        watcher = Watcher(rules, models, self.outbox.announce)
        self.writer = WindowWriter(self.serving, self.intake, self._may_show, watcher=watcher)
        self.analyser = Analyser(
            app, models, self.audio, self.serving, self.writer, self._fail, workers, options.directory
        )
        self.listeners = Listeners(self.analyser.taps, self.serving)
        self.outbox.follow(self.listeners.note_alarm)
        self.sources = SourceWatch(self.all_serving, partial(sender.append, COMMANDS))
        self.biller = SessionBiller(app, self.serving, ledger, self._metered)

    def on_init_dependencies(self) -> Iterable[mode.Service]:
        return [self.analyser]

    def announce(self, changes: Changes) -> None:
        super().announce(changes)
        self.listeners.note(changes.changed)

    def _needed(self, partition: int, offset: int) -> bool:
        owner = self.owners.here.get(partition)
        return owner is not None and owner.has_table and owner.sessions.references.held(offset)

    def lose(self, numbers: Collection[int]) -> None:
        super().lose(numbers)
        self.writer.lose(numbers)
        self.audio.forget(set(numbers))

    def store(self, owner: PartitionOwner) -> SessionStore:
        return owner.sessions

    async def begin(self, owner: PartitionOwner) -> int:
        self.add_future(self.outbox.begin(owner.sessions))
        return await super().begin(owner)

    async def remove_rest(self, store: SessionStore, project: str) -> int:
        return await erase_project(store, project)

    def open_streams(self, project: str) -> Mapping[str | None, Mapping[str, str]]:
        """Return the labels of a project's open streams here by their names; of some, if there are very many."""
        query, found = ListQuery(project, (SessionState.WRITABLE,)), dict[str | None, Mapping[str, str]]()
        listed = ((store, entry) for store in self.all_serving() for entry in store.listed(query))
        for store, entry in islice(listed, MOST_LOOKED_AT):
            if (opened := store.opened(entry.id)) is not None and opened.kind == "stream":
                found.setdefault(opened.file_name, opened.metadata)
        return found

    def needed_audio(self, head: SessionHead) -> range:
        return range(0) if head.ended else head.audio

    def note_pending(self, id: str, head: SessionHead, early: Changes) -> None:
        if head.analysable:
            early.work[id] = None
        if head.unmetered:
            early.unbilled[id] = None

        if head.source is not None or (head.anchor is not None and head.anchor.told):
            owner = self.owners.here.get(self.owners.number(id))
            if owner is not None and owner.has_table:
                owner.sessions.watched.add(id)

    async def sweep(self) -> None:
        await super().sweep()
        await self.outbox.sweep()
        self.sources.look()

    def take_work(self, changes: Changes) -> None:
        self.biller.ready.add(changes.unbilled)
        for session in changes.work:
            self.analyser.enqueue(session)

    def cancel(self, id: str) -> None:
        self.analyser.forget(id)

    def busy(self) -> Iterable[str]:
        return self.analyser.sessions()

    async def remove(self, id: str) -> None:
        await self.sender.submit(COMMANDS, id, Deleted(f"remove {id}"))

    async def expire(self, id: str, due: int, seen: int) -> None:
        await self.sender.append(COMMANDS, id, Expired("sweep", seen, due))

    async def give_up(self, id: str, due: int, seen: int) -> None:
        """Fail a session, so that its audio does not wait for ever, for example for a model that is gone."""
        log.warning("analysis.stands_still", session=keys.shown(id))
        await self._fail(id, STOOD_STILL)

    async def _fail(self, session: str, error: str) -> None:
        head = self.serving(session).head(session)
        await self.sender.append(COMMANDS, session, Failed("analysis", error, 0 if head is None else head.windows))

    async def _metered(self, session: str, metered: Metered) -> None:
        await self.sender.append(COMMANDS, session, metered)

    def _may_show(self, store: SessionStore) -> bool:
        owner = self.owners.here.get(store.partition.number)
        if owner is None or not owner.has_table or owner.sessions is not store:
            raise NotOwned("the partition is not here any more")
        return self.owners.may_read() and not owner.unread_gaps
