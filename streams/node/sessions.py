"""The work of a node for its sessions: two folds, the analyser and the biller."""

from collections.abc import Collection, Iterable
from typing import Final

import mode
from faust import App

from streams.audio.decode import OpenFile
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
from streams.sessions.audio import AudioCache, AudioSource
from streams.sessions.biller import SessionBiller
from streams.sessions.intake import SessionIntake
from streams.sessions.listeners import Listeners
from streams.sessions.results import SessionResults
from streams.sessions.store import SessionStore
from streams.workers.workers import Workers
from topics.catalog import COMMANDS, RESULTS
from topics.ports.ledger import Ledger
from topics.sessions.records import Expired, SessionResult
from topics.sessions.rules import SessionHead

#: Ten chunks of half a second for each of 2,000 microphones.
AUDIO_CACHE_BYTES: Final = 320 * 1024 * 1024


class SessionWorkload(Workload[SessionStore]):
    """Connects the intake, results, analyser and biller of a node's sessions. Loop only."""

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
        open_file: OpenFile,
        workers: Workers,
        ledger: Ledger | None,
    ) -> None:
        super().__init__(owners, sender, followers)
        self._idle_ms = int(options.idle_seconds * 1000)
        self.cache = AudioCache(AUDIO_CACHE_BYTES)
        self.results = SessionResults(self.announce, sender.verdicts)
        self.intake = SessionIntake(sender.verdicts, self._idle_ms, self.announce, self.cache)
        self.folds = {COMMANDS: self.intake, RESULTS: self.results}
        self.audio = AudioSource(self.cache, reader, self._needed)
        self.analyser = Analyser(
            app, models, self.audio, self.serving, self._emit, workers, options.directory, open_file
        )
        self.listeners = Listeners(self.analyser.taps, self.serving)
        self.biller = SessionBiller(app, self.serving, ledger, self._emit)

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
        self.cache.forget(set(numbers))
        self.audio.forget(set(numbers))

    def store(self, owner: PartitionOwner) -> SessionStore:
        return owner.sessions

    def needed_audio(self, head: SessionHead) -> range:
        return range(0) if head.ended else head.audio

    def note_pending(self, id: str, head: SessionHead, early: Changes) -> None:
        if head.analysable:
            early.work[id] = None
        if head.unmetered:
            early.unbilled[id] = None

    def take_work(self, changes: Changes) -> None:
        self.biller.ready.add(changes.unbilled)
        for session in changes.work:
            self.analyser.enqueue(session)

    def cancel(self, id: str) -> None:
        self.analyser.forget(id)

    def busy(self) -> Iterable[str]:
        return self.analyser.sessions()

    async def expire(self, id: str, due: int) -> None:
        await self.sender.append(COMMANDS, id, Expired("sweep", self._idle_ms, due))

    async def _emit(self, session: str, result: SessionResult) -> None:
        await self.sender.append(RESULTS, session, result)
