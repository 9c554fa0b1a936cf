"""What a node does for its sessions: two agents that fold, and the analyser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from streams.folding.agent import Changes
from streams.folding.followers import Followers
from streams.log import RecordReader
from streams.models.loaded_models import LoadedModels
from streams.node.agents import FoldingAgents
from streams.node.options import NodeOptions
from streams.node.partitions import OwnedPartitions
from streams.node.sender import RecordSender
from streams.node.workload import Workload
from streams.sessions.analyser import Analyser
from streams.sessions.audio import AudioCache, AudioSource
from streams.sessions.intake import SessionIntake
from streams.sessions.results import SessionResults
from streams.sessions.store import SessionStore
from topics.catalog import COMMANDS, RESULTS
from topics.sessions.records import Expired, Failed, SessionResult

AUDIO_CACHE_BYTES: Final = 64 * 1024 * 1024


class SessionWorkload(Workload[SessionStore]):
    """Intake, results and analyser of the sessions of a node."""

    commands = COMMANDS

    def __init__(
        self,
        options: NodeOptions,
        partitions: OwnedPartitions,
        sender: RecordSender,
        followers: Followers,
        agents: FoldingAgents,
        models: LoadedModels,
        reader: RecordReader,
    ) -> None:
        super().__init__(partitions, partitions.sessions, sender, followers)
        self._idle_ms = int(options.idle_seconds * 1000)
        cache = AudioCache(AUDIO_CACHE_BYTES)
        intake = SessionIntake(sender.verdicts, self.references, self._idle_ms, self.announce, cache)
        self.results = SessionResults(self.references, self.announce, models.tags)
        self.analyser = Analyser(
            models,
            AudioSource(cache, reader),
            self.stores.serving,
            self._emit,
            options.workers,
            options.directory,
        )
        agents.add(COMMANDS, "intake", intake, self.stores.of_partition)
        agents.add(RESULTS, "results", self.results, self.stores.of_partition)

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Start the lanes of the analyser; `ended` is called with each that ends."""
        self.analyser.start(ended)

    async def survey(self, partition: int) -> None:
        """Find in the rows what is still to be analysed, and which audio must stay in the log."""
        store = self.stores.of_partition(partition)
        for session, head in store.all_heads():
            if head is None:
                store.tidy(session, None)
                continue
            for row in store.audio(session, head.cursor.keep, head.next):
                self.references.add(partition, row.offset)
            if head.analysable:
                self.early.work[session] = None
            await asyncio.sleep(0)

    def take_work(self, changes: Changes) -> None:
        """Queue sessions for the analyser."""
        for session in changes.work:
            self.analyser.enqueue(session)

    def cancel(self, id: str) -> None:
        """Cancel the analysis of a session that was deleted."""
        self.analyser.forget(id)

    def cancel_all(self) -> None:
        """Cancel all analysis."""
        self.analyser.forget_all()

    async def expire(self, id: str, due: int) -> None:
        """Append the command that deletes an idle session."""
        await self.sender.append(COMMANDS, id, Expired("sweep", self._idle_ms, due), bounded=False)

    async def stop(self) -> None:
        """Stop the analyser."""
        await self.analyser.stop()

    async def _emit(self, session: str, result: SessionResult) -> None:
        first = isinstance(result, Failed) or result.first == 0
        await self.sender.emit(RESULTS, session, result, first=first)
