"""The owner notes that a source sends no audio any more, and that it sends again: once, whatever restarts."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from streams.node.node import Node
from streams.sessions.source_watch import LOST_MS, change
from tests.unit.streams.node.nodes import Home, in_partition, send, view
from tests.unit.streams.sessions.studio import STREAM, sound
from tests.waiting import until
from topics.service_time import Served
from topics.sessions.capture import SourceEvent, SourceState
from topics.sessions.records import Chunk, Sealed, SessionCommand, SourceNoted
from topics.sessions.rules import SessionHead, SessionState

NUMBER = 1
HEAD = SessionHead("stream", None, 1000, 7)


def head_of(event: SourceEvent, at_ms: int, *, told: bool, due: int = 0) -> SessionHead:
    return msgspec.structs.replace(HEAD, source=SourceState(event, at_ms, told, 1, 1, due))


def captured(home: Home) -> SessionCommand:
    return Chunk("c", 0, sound(0.5), captured=int(home.clock.now * 1000))


async def serve(home: Home, node: Node, seconds: float) -> None:
    """Let service time pass: a longer step would count as an absence."""
    while seconds > 0:
        home.clock.now += (step := min(4.0, seconds))
        seconds -= step
        await until(partial(_has_served, node, home.clock.now))


def _has_served(node: Node, now: float) -> bool:
    served = node.owners.here[NUMBER].presence.served
    return served is not None and served.until >= int(now * 1000)


def events(node: Node, session: str) -> list[tuple[str, bool]]:
    return [(note.event, note.told) for note in node.owners.here[NUMBER].sessions.notes(session, 0)]


async def test_loss_and_return_are_noted_once_across_restarts(tmp_path: Path) -> None:
    home, session, sealed, silent = Home(tmp_path), *(in_partition(NUMBER) for _ in range(3))
    async with home.serving(sweep_seconds=0.02) as node:
        await send(node, session, STREAM, captured(home))
        await send(node, sealed, STREAM, captured(home), Sealed("s"))
        await send(node, silent, STREAM, Chunk("c", 0, sound(0.5)))
        await serve(home, node, 50)
        assert events(node, session) == []
    home.clock.now += 3600
    async with home.serving(sweep_seconds=0.02) as node:
        await serve(home, node, 8)
        assert events(node, session) == [], "the service was away"
        await serve(home, node, 8)
        await until(lambda: events(node, session) == [("source.lost", False)])
    async with home.serving(sweep_seconds=0.02) as node:
        await serve(home, node, 80)
        assert events(node, session) == [("source.lost", False)]
        await send(node, session, Chunk("d", 1, sound(0.5)))
        await until(lambda: events(node, session) == [("source.lost", False), ("source.back", False)])
        await serve(home, node, 30)
        await until(lambda: not view(node, session).head.has_unheard)
        assert len(events(node, session)) == 2
        assert events(node, sealed) == events(node, silent) == []
        assert node.owners.here[NUMBER].sessions.watched == {session}


@pytest.mark.parametrize(
    ("head", "served", "event"),
    [
        (HEAD, Served(1000 + LOST_MS), None),
        (HEAD, Served(1001 + LOST_MS), "source.lost"),
        (HEAD, Served(9000 + LOST_MS, ((2000, 10_000),)), None),
        (HEAD, Served(9001 + LOST_MS, ((2000, 10_000),)), "source.lost"),
        (head_of("source.silent", 5, told=True), Served(1001 + LOST_MS), "source.lost"),
        (head_of("source.lost", 999, told=False), Served(2000), "source.back"),
        (head_of("source.lost", 1000, told=False), Served(2000), None),
        (head_of("source.lost", 999, told=True), Served(9000 + LOST_MS), None),
        (head_of("source.lost", 999, told=False, due=3_600_000), Served(2000), None),
    ],
)
def test_what_changed(head: SessionHead, served: Served, event: str | None) -> None:
    note = change(head, served)
    assert (None if note is None else note.event) == event
    assert note is None or isinstance(note, SourceNoted)
    assert head.state is SessionState.WRITABLE
