"""In-memory ports of the edge: the laws of `topics`, over a trivial analysis.

Audio is 16-bit mono, raw or in a WAV. A window with sound reports tag `window % 3` well above its operating point and
the next tag slightly above; a silent one reports nothing.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
import wave
from collections import defaultdict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from streams.audio import raw_check
from streams.folding.followers import Follower, Subscription
from streams.sessions.listeners import ProjectFollower
from tests.stored import assert_stored
from topics import apikeys, record_codec
from topics.alarms.tags import Classes
from topics.apikeys import KeyKind
from topics.choices import Choices
from topics.errors import AudioError, BadRequest, DirectoryDown, EarshotError, Unavailable
from topics.folding import Answer, Arrival, Effect, Receipt, Verdict
from topics.hearing import Hearing, OwnSound, model_with, parts_of
from topics.keys import new_id
from topics.ports.directory import AudioLink, Principal
from topics.ports.health import Note
from topics.ports.jobs import JobView
from topics.ports.lists import Coverage, ListQuery
from topics.ports.live import BANDS, WindowSound
from topics.ports.sessions import SessionView, Windows
from topics.sessions.analysis_rules import grown, renamed, tuned
from topics.sessions.capture import Anchor, CaptureTime, SourceNote
from topics.sessions.commands import fold_command
from topics.sessions.records import Chunk, Failed, NewWindows, Opened, Renamed, SessionCommand, SourceNoted, Tuned
from topics.sessions.rules import SessionHead, SessionState

TAGS = ("Dog_bark", "Siren", "Speech", "Baby_cry", "Knock")
MODEL = "double@00000000"
GRAPH = "5" * 64
STRONG, WEAK, FAINT = 180, 135, 120

#: Log time of the first command, milliseconds: 2026-01-02T03:04:05.678Z.
BEGINNING = 1_767_323_045_678

V = TypeVar("V", SessionView, JobView)
F = TypeVar("F", bound=Subscription)


def chosen(entries: list[tuple[int, str, V]], query: ListQuery) -> list[tuple[int, str, V]]:
    found = [
        (-at, id, view)
        for at, id, view in entries
        if query.since_ms <= at < query.until_ms and view.head.state in (query.states or view.head.state)
    ]
    place = (-(1 << 63), "") if query.after is None else (-query.after[0], query.after[1])
    later = sorted(entry for entry in found if entry[:2] > place)
    return [(-at, id, view) for at, id, view in later[: query.count]]


class Crowd(defaultdict[str, set[Any]]):
    """Readers by the id that they follow; `streams.folding.followers.Followers` wakes them in turn."""

    def __init__(self) -> None:
        super().__init__(set)

    def enter(self, kind: Callable[..., F], id: str, *arguments: object) -> F:
        follower = kind(self, id, *arguments)
        self[id].add(follower)
        return follower

    def leave(self, id: str, follower: Subscription) -> None:
        self[id].discard(follower)

    def wake(self, id: str, lost: bool = False) -> None:
        for follower in list(self[id]):
            follower.wake(lost)


class Tap(msgspec.Struct):
    """`topics.ports.live.SoundTap` of windows that sound alike in all sessions."""

    sounds: dict[int, WindowSound]

    def window(self, session: str, number: int) -> WindowSound | None:
        return self.sounds.get(number)

    def close(self) -> None: ...


class Session(msgspec.Struct):
    opened: Opened
    head: SessionHead
    #: Log time of the opening.
    at: int
    chunks: list[bytes] = []
    receipts: dict[int, Receipt] = {}
    scores: bytearray = msgspec.field(default_factory=bytearray)
    #: Anchors of capture times, the last first; and notes of the source.
    anchors: list[Anchor] = []
    notes: list[SourceNote] = []


class MemoryItems:
    """What the ports of sessions and of jobs have in common."""

    noun = "sessions"

    def __init__(self) -> None:
        self.followers = Crowd()
        #: By project.
        self.listeners = Crowd()
        self.failure: EarshotError | None = None
        #: Sessions or jobs of another node, and its URL.
        self.elsewhere: dict[str, str] = {}
        #: Sessions or jobs whose partitions move; `changed` is set once they have moved.
        self.moving: set[str] = set()
        #: The node that takes new ones.
        self.other: str | None = None
        self.version = b"0000000001"
        self.changed = asyncio.Event()
        #: Times that a request has waited for that.
        self.waiting = 0
        #: Projects at their limit.
        self.full: set[str] = set()
        self.stands_in = False
        self.covered = Coverage(frozenset({0}), 1, frozenset())

    def admit(self, project: str) -> None:
        if project in self.full:
            raise Unavailable(f"the project has its most open {self.noun}")

    def new_id(self) -> str:
        return new_id()

    def host(self) -> str | None:
        return self.other

    def owner(self, id: str) -> str | None:
        return self.elsewhere.get(id)

    def is_moving(self, id: str) -> bool:
        return id in self.moving

    def plan(self) -> bytes:
        return self.version

    async def owner_changed(self) -> None:
        self.waiting += 1
        await self.changed.wait()
        self.changed = asyncio.Event()

    def coverage(self) -> Coverage:
        return self.covered

    def follow(self, id: str) -> Follower:
        return self.followers.enter(Follower, id)

    def hearing(self, name: str | None, own: Sequence[OwnSound], choices: Choices) -> tuple[str, Hearing]:
        if name not in (None, MODEL.partition("@")[0]):
            raise BadRequest(f"model: {name!r} is not available")
        names = tuple(sound.name for sound in own)
        return model_with(MODEL, names), Hearing(names, b"", choices, self.stands_in)


class MemorySessions(MemoryItems):
    """`topics.ports.sessions.Sessions` without a log; counts the appends that a log would get."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, Session] = {}
        self.tombstones: dict[str, SessionHead] = {}
        #: Sound of each window by number, for all sessions.
        self.sounds = {number: WindowSound(-20.5, -10, bytes([number] * 10 * BANDS)) for number in range(8)}
        self.appended: list[SessionCommand] = []
        #: While True nothing is analysed.
        self.paused = False
        #: Commands without a verdict; they get none while `slow`.
        self.unfolded: list[tuple[str, SessionCommand, Callable[[Answer], None]]] = []
        self.slow = False
        #: The embedding kept with each window, for all sessions.
        self.kept: list[bytes] = []

    async def submit(self, session: str, command: SessionCommand | Tuned) -> Verdict:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if isinstance(command, Tuned | Renamed):
            return self._change(session, command)
        return self._fold(session, command)

    def send(self, session: str, command: SessionCommand, answered: Callable[[Answer], None]) -> None:
        if self.failure is not None:
            raise self.failure
        self.unfolded.append((session, command, answered))
        asyncio.get_running_loop().call_soon(self.fold_sent)

    def fold_sent(self) -> None:
        """Fold sent commands, unless the log is slow."""
        while self.unfolded and not self.slow:
            session, command, answered = self.unfolded.pop(0)
            answered(self._fold(session, command))

    def catch_up(self) -> None:
        """Be slow no more."""
        self.slow = False
        self.fold_sent()

    check_beginning = staticmethod(raw_check.check_beginning)
    check_floats = staticmethod(raw_check.check_floats)

    def same_audio(self, session: str, number: int, data: bytes) -> bool:
        chunks = self.sessions[session].chunks
        return number < len(chunks) and chunks[number] == data

    def subscribe(self, session: str, woken: Callable[[bool], None]) -> Subscription:
        return self.followers.enter(Subscription, session, woken)

    def _fold(self, session: str, command: SessionCommand) -> Verdict:
        assert_stored(command, record_codec.decode_command)
        self.appended.append(command)
        known = self.sessions.get(session)
        arrival = self._arrival(known, command)
        step = fold_command(self.tombstones.get(session) if known is None else known.head, command, arrival)
        # There is no ledger to wait for.
        if step.head is None or step.head.state is SessionState.DELETED:
            self.sessions.pop(session, None)
            if step.head is not None:
                self.tombstones[session] = step.head
        elif isinstance(command, Opened):
            opened = msgspec.structs.replace(command, at=BEGINNING + arrival.at)
            self.sessions[session] = Session(opened, step.head, opened.at)
        elif known is not None:
            known.head = step.head
            self._keep(known, command, arrival, step.effects)
        if Effect.WORK in step.effects and not self.paused:
            asyncio.get_running_loop().call_soon(self.analyse, session)
        self._wake(session)
        return step.verdict

    def _change(self, session: str, change: Tuned | Renamed) -> Verdict:
        assert_stored(change, record_codec.decode_command)
        known = self.sessions.get(session)
        step = fold_command(None if known is None else known.head, change, Arrival(len(self.appended), 0))
        if known is not None and step.head is not None and step.effects:
            known.head = step.head
            if isinstance(change, Tuned):
                known.opened = tuned(known.opened, change, known.head.windows)
            else:
                known.opened = renamed(known.opened, change)
        self._wake(session)
        return step.verdict

    def view(self, session: str) -> SessionView | None:
        known = self.sessions.get(session)
        return None if known is None else SessionView(known.opened, known.head)

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        width = len(TAGS)
        scores = bytes(self.sessions[session].scores[first * width : (first + count) * width])
        # Two blocks, so that a reader must join them.
        middle = len(scores) // width // 2
        blocks = (
            Windows(first, MODEL, scores[: middle * width]),
            Windows(first + middle, MODEL, scores[middle * width :]),
        )
        return [block for block in blocks if block.scores]

    def listed(self, query: ListQuery) -> list[tuple[int, str, SessionView]]:
        entries = [
            (session.at, id, SessionView(session.opened, session.head))
            for id, session in self.sessions.items()
            if session.opened.project == query.project
        ]
        return chosen(entries, query)

    def listen(self, session: str) -> Tap:
        return Tap(self.sounds)

    def follow_project(self, project: str, session: str | None = None) -> ProjectFollower:
        return self.listeners.enter(ProjectFollower, project, Tap(self.sounds))

    def model(self) -> str:
        return MODEL

    def graph(self, model: str) -> str | None:
        return GRAPH

    def time_of(self, session: str, position_ms: int) -> CaptureTime:
        known = self.sessions[session]
        for anchor in known.anchors:
            if anchor.position_ms <= position_ms:
                return CaptureTime(anchor.at(position_ms), anchor.told)
        return CaptureTime(known.opened.at + position_ms, told=False)

    def notes(self, session: str, first: int, stop: int) -> Sequence[SourceNote]:
        return self.sessions[session].notes[first:stop]

    def embeddings(self, session: str, first: int, stop: int) -> Sequence[bytes]:
        return self.kept[first:stop]

    def tags(self, model: str) -> Sequence[str]:
        base, own = parts_of(model)
        assert base == MODEL
        return (*TAGS, *own)

    def official_tags(self) -> Sequence[str]:
        return TAGS

    def classes(self) -> Classes:
        return {"Animal": TAGS[:2]}

    def analyse(self, session: str) -> None:
        """Do all pending analysis."""
        known = self.sessions.get(session)
        if known is None or known.head.error is not None:
            return
        try:
            new = scored(known)
        except AudioError as error:
            self.fail(session, str(error))
        else:
            self.conclude(session, new)

    def fail(self, session: str, error: str) -> None:
        """End a session with an error."""
        known = self.sessions[session]
        failed = Failed("analysis", error, known.head.windows)
        known.head = fold_command(known.head, failed, Arrival(len(self.appended), 0)).head or known.head
        self._wake(session)

    def conclude(self, session: str, new: NewWindows) -> None:
        """Show windows, of which the session may have some already."""
        known = self.sessions.get(session)
        if known is not None and not known.head.ended:
            there = known.head.windows - new.first
            new = msgspec.structs.replace(new, first=known.head.windows, scores=new.scores[there * len(TAGS) :])
            end, heard = new.first + new.count, known.head.heard
            known.notes[heard:] = [msgspec.structs.replace(note, window=end) for note in known.notes[heard:]]
            known.head = grown(known.head, msgspec.structs.replace(new, notes=tuple(known.notes[heard:])), 0)
            known.scores += new.scores
        self._wake(session)

    def _arrival(self, known: Session | None, command: SessionCommand) -> Arrival:
        arrival = Arrival(len(self.appended), at=len(self.appended))
        if known is None or not isinstance(command, Chunk):
            return arrival
        digest = blake2b(command.data, digest_size=16).digest()
        receipt = None if command.sequence is None else known.receipts.get(command.sequence)
        return msgspec.structs.replace(arrival, digest=digest, receipt=receipt)

    def _keep(self, known: Session, command: SessionCommand, arrival: Arrival, effects: tuple[Effect, ...]) -> None:
        if isinstance(command, Chunk) and Effect.KEEP_AUDIO in effects:
            if Effect.KEEP_RECEIPT in effects:
                known.receipts[len(known.chunks)] = Receipt(command.idempotency, arrival.digest)
            known.chunks.append(command.data)
        if Effect.KEEP_ANCHOR in effects and known.head.anchor is not None:
            known.anchors.insert(0, known.head.anchor)
        if isinstance(command, SourceNoted) and effects and (source := known.head.source) is not None:
            note = (len(known.notes), source.event, source.at_ms, source.told, command.reason)
            known.notes.append(SourceNote(*note, chunk=known.head.next))

    def _wake(self, session: str) -> None:
        self.followers.wake(session)
        known = self.sessions.get(session)
        for project, listeners in self.listeners.items():
            if known is None or known.opened.project == project:
                for listener in listeners:
                    listener.note(session, 0 if known is None else max(0, known.head.windows - 64))


def scored(known: Session) -> NewWindows:
    """Analyse a session from its beginning; return all its windows."""
    opened, head = known.opened, known.head
    if head.predicts:
        loudness = [is_loud(samples(opened, chunk)[1]) for chunk in known.chunks]
    else:
        whole = [b"".join(known.chunks)] if opened.kind == "file" else known.chunks
        loudness = windows(opened, [samples(opened, part) for part in whole], head.state is SessionState.READONLY)
    final = head.state is SessionState.READONLY
    packed = b"".join(window_scores(index, loud) for index, loud in enumerate(loudness))
    cursor = msgspec.structs.replace(head.cursor, chunks=len(known.chunks))
    return NewWindows(0, MODEL, packed, cursor, final, len(TAGS))


def windows(opened: Opened, parts: list[tuple[int, bytes]], final: bool) -> list[bool]:
    """Return for each window whether it contains sound."""
    rate = parts[0][0] if parts else 16_000
    pcm = b"".join(part for _, part in parts)
    total = len(pcm) // 2
    length, hop, tail = (rate * ms // 1000 for ms in (opened.window_ms, opened.hop_ms, 25))
    found: list[bool] = []
    while True:
        start = len(found) * hop
        exists = total >= 1 if not found else total - (start - hop + length) >= tail
        if not exists or (start + length > total and not final):
            return found
        found.append(is_loud(pcm[2 * start : 2 * (start + length)]))


def is_loud(pcm: bytes) -> bool:
    return pcm != bytes(len(pcm))


def window_scores(window: int, loud: bool) -> bytes:
    scores = bytearray([0] * len(TAGS))
    if loud:
        scores[window % 3] = STRONG
        scores[window % 3 + 1] = WEAK
        scores[4] = FAINT
    return bytes(scores)


def samples(opened: Opened, data: bytes) -> tuple[int, bytes]:
    """Return (rate, 16-bit samples) of stand-alone audio; wider frames give their first two bytes."""
    declared = opened.content_type
    if raw := re.fullmatch(r"audio/x-raw; *rate=(\d+); *format=[sf](\d+)(?:le)?(?:; *channels=(\d))?", declared):
        frame = int(raw[2]) // 8 * int(raw[3] or 1)
        frames = data if frame == 2 else b"".join(data[start : start + 2] for start in range(0, len(data), frame))
        return int(raw[1]), frames
    if declared != "audio/wav":
        raise AudioError(f"declared {declared}, but the data is something else")
    try:
        with wave.open(io.BytesIO(data)) as audio:
            return audio.getframerate(), audio.readframes(audio.getnframes())
    except (wave.Error, EOFError) as error:
        raise AudioError(f"declared {declared}, but the data is not: {error}") from error


class MemoryDirectory:
    """`topics.ports.directory.Directory` over a dictionary; can fail, and counts look-ups."""

    def __init__(self, keys: dict[str, Principal], organizations: dict[str, str]) -> None:
        self.keys = keys
        #: Organization keys and their owners.
        self.organizations = organizations
        self.down = False
        #: Projects whose free seconds are used up.
        self.spent: set[str] = set()
        self.questions = 0
        #: Links to recordings.
        self.links: dict[str, AudioLink] = {}

    async def project(self, key: str) -> Principal | None:
        self.questions += 1
        await asyncio.sleep(0)
        if self.down:
            raise DirectoryDown("the database does not answer")
        return self.keys.get(key)

    async def organization(self, key: str) -> str | None:
        self.questions += 1
        await asyncio.sleep(0)
        if self.down:
            raise DirectoryDown("the database does not answer")
        return self.organizations.get(key)

    async def link_audio(self, key: str, job: str) -> str | None:
        await asyncio.sleep(0)
        if (principal := self.keys.get(key)) is None:
            return None
        token = apikeys.new(KeyKind.AUDIO)
        ends_at = int((time.time() + 3600) * 1000)
        self.links[token] = AudioLink(principal.project, principal.organization, job, ends_at)
        return token

    async def audio_link(self, token: str) -> AudioLink | None:
        await asyncio.sleep(0)
        if self.down:
            raise DirectoryDown("the database does not answer")
        return self.links.get(token)

    async def exhausted(self, principal: Principal) -> bool:
        await asyncio.sleep(0)
        if self.down:
            raise DirectoryDown("the database does not answer")
        return principal.project in self.spent


class MemoryHealth:
    """`topics.ports.health.Health` with a configurable state."""

    def __init__(self) -> None:
        self.dying: str | None = None
        self.waiting: str | None = None
        self.told: list[Note] = []
        self.behind = False

    def is_behind(self) -> bool:
        return self.behind

    def alive(self) -> str | None:
        return self.dying

    def ready(self) -> str | None:
        return self.waiting

    def notes(self) -> list[Note]:
        return self.told
