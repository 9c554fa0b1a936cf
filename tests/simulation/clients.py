"""Clients that open, stream, seal and delete sessions, and retry as real ones do; their knowledge is the model."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from streams.sessions.store import SessionStore
from tests.simulation.node import Node
from topics import keys
from topics.errors import NotOwned
from topics.folding import Verdict
from topics.sessions.records import Chunk, Deleted, Opened, Sealed, SessionCommand, SessionKind, SourceNoted
from topics.sessions.rows import BLOCK_WINDOWS
from topics.sessions.rules import SessionState

#: Time after which a client leaves a silent node for another.
PATIENCE_SECONDS: Final = 6.0
#: An owner that learns late of its loss may acknowledge commands, which the next owner finds at its second look at the
#: log.
STALE_SECONDS: Final = 6
#: Share of the readers' looks at a node at what it stands by for.
STANDBY_SHARE: Final = 0.2
PROJECTS: Final = ("p0", "p1")
#: A byte is a millisecond.
AUDIO: Final = "audio/x-raw; rate=1000; format=u8"
PATTERN: Final = keys.ALPHABET


@dataclass
class Session:
    """A client's view of a session: everything acknowledged, and nothing else, must be there."""

    id: str
    kind: SessionKind
    project: str
    chunks: list[bytes] = field(default_factory=list)
    #: When each chunk was captured (Unix ms), 0 if the client did not tell; and the reasons of its notes.
    captured: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sealed: bool = False
    deleted: bool = False
    #: Its deletion was confirmed by a 204.
    confirmed: bool = False
    #: The scores that a reader saw.
    shown: bytes = b""
    #: A reader was told that no more follow.
    ended: bool = False


def shown(store: SessionStore, session: str) -> bytes:
    """Return the scores that a reader sees."""
    head = store.head(session)
    if head is None:
        return b""
    blocks = store.blocks(session, 0, head.windows // BLOCK_WINDOWS + 1)
    return b"".join(block.scores for block in blocks)


def shows(node: Node, session: Session) -> bool:
    """Return whether a node shows anything of a session."""
    store = node.store(session.id)
    head = None if store is None else store.head(session.id)
    return head is not None and head.state is not SessionState.DELETED


class Pace:
    """When clients send: a few commands throughout a history, then all the rest."""

    def __init__(self) -> None:
        self._open = False
        self._turns = 0
        self._changed = asyncio.Event()

    def grant(self, count: int) -> None:
        self._turns += count
        self._changed.set()

    def finish(self) -> None:
        self._open = True
        self._changed.set()

    @property
    def finished(self) -> bool:
        return self._open

    async def turn(self) -> None:
        while not self._open and not self._turns:
            self._changed.clear()
            await self._changed.wait()
        self._turns -= 1


class Client:
    """One client: sessions in sequence, their commands in order."""

    def __init__(
        self, number: int, nodes: Sequence[Node], chance: random.Random, pace: Pace, wrong: Callable[[str], None]
    ) -> None:
        self.sessions: list[Session] = []
        self._number = number
        self._nodes = nodes
        self._chance = chance
        self._pace = pace
        self._wrong = wrong
        self._at = number % len(nodes)
        self._commands = 0
        #: Whether an earlier attempt of the command may still arrive.
        self._again = False

    async def run(self) -> None:
        reading = asyncio.create_task(self._read())
        while not self._pace.finished:
            await self._session()
        reading.cancel()

    async def _read(self) -> None:
        """Read the newest session wherever it is served: what was shown stays as it is."""
        while True:
            await asyncio.sleep(0.01 + self._chance.random() * 0.05)
            for node in self._nodes if self.sessions else ():
                if self._chance.random() < STANDBY_SHARE:
                    self._read_standby(node, self.sessions[-1])
                    if len(self.sessions) > 1:
                        self._read_standby(node, self.sessions[-2])
                session = self.sessions[-1]
                if (store := node.store(session.id)) is None:
                    continue
                scores = shown(store, session.id)
                known = min(len(scores), len(session.shown))
                if scores[:known] != session.shown[:known]:
                    self._wrong(f"{session.id}: {node.name} shows {scores.hex()}, and it was {session.shown.hex()}")
                if len(scores) > known:
                    session.shown = scores

    def _read_standby(self, node: Node, session: Session) -> None:
        """Read a session from a stand-by: nothing that was read is missing, and nothing that was deleted is there."""
        before, confirmed, ended = session.shown, session.confirmed, session.ended

        def seen(store: SessionStore) -> None:
            head = store.head(session.id)
            if head is None or head.state is SessionState.DELETED or store.opened(session.id) is None:
                return
            scores = shown(store, session.id)
            short = min(scores, session.shown, key=len)
            if confirmed:
                self._wrong(f"{session.id}: the stand-by {node.name} shows it, though it was deleted")
            if not scores.startswith(before) or not max(scores, session.shown, key=len).startswith(short):
                self._wrong(f"{session.id}: the stand-by {node.name} shows {scores.hex()}, and it was {before.hex()}")
            if ended and scores != before:
                self._wrong(f"{session.id}: the stand-by {node.name} shows {scores.hex()} after the end")
            session.shown = max(scores, session.shown, key=len)
            session.ended = session.ended or head.ended

        node.read(session.id, seen)

    async def _session(self) -> None:
        chance = self._chance
        kind: SessionKind = "file" if chance.random() < 0.2 else "stream"
        keyed = chance.random() < 0.5
        await self._pace.turn()
        session = await self.open(kind, PROJECTS[chance.randrange(len(PROJECTS))])
        self.sessions.append(session)
        for number in range(chance.randint(1, 8)):
            if self._pace.finished:
                break
            await self._pace.turn()
            if kind == "stream" and chance.random() < 0.2:
                await self._note(session)
            await self._chunk(session, number, keyed)
            await asyncio.sleep(chance.random() * 0.08)
        end = chance.random()
        if end < 0.7:
            await self._pace.turn()
            await self._seal(session)
        if end > 0.55:
            await self._pace.turn()
            await self.delete(session)

    async def open(self, kind: SessionKind, project: str) -> Session:
        while True:
            # Each attempt creates a session, as at the edge; one whose answer is lost belongs to no client.
            id = "".join(self._chance.choices(PATTERN, k=keys.ID_LENGTH))
            verdict = await self._attempt(
                id, lambda command: Opened(command, kind, AUDIO, project, 1000, 1000, model="model@0")
            )
            if verdict is not None:
                if verdict.status != 200:
                    self._wrong(f"{id}: the opening was refused: {verdict}")
                return Session(id, kind, project)

    async def _chunk(self, session: Session, number: int, keyed: bool) -> None:
        data = f"{session.id}-{number}-{self._chance.random()}".encode()
        key = data[-16:] if keyed else b""

        def taken(verdict: Verdict) -> bool:
            # An attempt that arrived after the client had given it up is recognised by its number.
            repeated = self._again and not keyed and verdict.status == 409
            return (verdict.status == 200 or repeated) and verdict.next == number + 1

        captured = self._chance.randrange(10**12) if self._chance.random() < 0.5 else 0
        verdict = await self._submit(
            session, lambda command: Chunk(command, number, data, key, captured=captured), taken
        )
        if not taken(verdict):
            self._wrong(f"{session.id}: chunk {number} was refused: {verdict}")
        session.chunks.append(data)
        session.captured.append(captured)

    async def _note(self, session: Session) -> None:
        reason = f"{len(session.notes)}"
        verdict = await self._submit(
            session,
            lambda command: SourceNoted(command, "source.silent", 1, reason),
            lambda verdict: verdict.status == 204,
        )
        if verdict.status != 204:
            self._wrong(f"{session.id}: note {reason} was refused: {verdict}")
        session.notes.append(reason)

    async def _seal(self, session: Session) -> None:
        verdict = await self._submit(session, Sealed, lambda verdict: verdict.status == 204)
        if verdict.status != 204:
            self._wrong(f"{session.id}: it was not sealed: {verdict}")
        session.sealed = True

    async def delete(self, session: Session) -> None:
        verdict = await self._submit(session, Deleted, lambda verdict: verdict.status == 204)
        if verdict.status != 204 and not (verdict.status == 404 and self._again):
            self._wrong(f"{session.id}: it was not deleted: {verdict}")
        session.deleted = True
        session.confirmed = verdict.status == 204

    async def _submit(
        self, session: Session, make: Callable[[str], SessionCommand], fits: Callable[[Verdict], bool]
    ) -> Verdict:
        """Send a command until its verdict fits; fail if none fits for too long."""
        self._again = False
        refused = 0
        while True:
            verdict = await self._attempt(session.id, make)
            if verdict is None:
                self._again = True
            elif fits(verdict) or refused == STALE_SECONDS:
                return verdict
            else:
                refused += 1
                await asyncio.sleep(1.0)

    async def _attempt(self, id: str, make: Callable[[str], SessionCommand]) -> Verdict | None:
        """Return the verdict, None if the command's fate is unknown."""
        while True:
            self._commands += 1
            command = make(f"{self._number}-{self._commands}")
            try:
                return await self._nodes[self._at].ask(id, command, PATIENCE_SECONDS)
            except NotOwned:
                self._at = (self._at + 1) % len(self._nodes)
                await asyncio.sleep(0.01 + self._chance.random() * 0.1)
            except Exception:
                self._at = self._chance.randrange(len(self._nodes))
                await asyncio.sleep(0.05 + self._chance.random() * 0.5)
                return None
