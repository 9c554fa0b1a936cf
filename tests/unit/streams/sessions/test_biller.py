"""The biller of sessions: the ledger first, then the log; audio of steps adds up; deleted sessions too."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.agents import NodeApp
from streams.folding import billing as shared
from streams.sessions import biller as module
from streams.sessions.biller import SessionBiller
from streams.sessions.metering import charges
from tests.unit.streams.folding.books import Books, billing
from tests.unit.streams.sessions.world import BEGUN, MODEL, SESSION, TAGS, World, score
from tests.waiting import until
from topics import keys, record_codec
from topics.ports.ledger import Charge, MeteredService
from topics.sessions.records import Chunk, Cursor, Deleted, Metered, NewWindows, Opened, Sealed, SessionCommand
from topics.sessions.rules import METER_WINDOWS

OPENED = Opened("c", "stream", "audio/wav", "p", 1000, 500, model="m@1", organization="o")


def analysed(*after: SessionCommand, opened: Opened = OPENED) -> World:
    """Return a session of two windows, followed by `after`."""
    world = World()
    world.take(opened, Chunk("c", 0, b"a"), Chunk("c", 1, b"b"))
    world.analyse(2)
    world.take(*after)
    if world.head.analysable:
        world.analyse()
    return world


async def bill(world: World, ledger: Books) -> None:
    """Let the biller take the session until nothing is left to bill."""

    async def emit(session: str, result: Metered) -> None:
        world.take(result)

    app = NodeApp()
    async with billing(app, SessionBiller(app, lambda session: world.store, ledger, emit), "X" * 24, SESSION):
        await until(lambda: any(isinstance(record_codec.decode_command(one.value), Metered) for one in world.log))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "LONGEST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.001)


LINE = Charge(SESSION, MeteredService.SESSION, "p", "o", 1500, "m@1", BEGUN)


async def test_ended_session_is_billed_once() -> None:
    world, books = analysed(Sealed("c")), Books()
    head = world.head
    assert head.unsettled, "it is found again until it is billed"
    await bill(world, books)
    assert books.lines == [LINE]
    head = world.head
    assert (head.metered, head.unmetered, head.unsettled) == (2, False, False)


@pytest.mark.parametrize("derived", [False, True])
async def test_deleted_session_is_billed_before_final_removal(derived: bool) -> None:
    world, books = analysed(Deleted("c"), opened=msgspec.structs.replace(OPENED, derived=derived)), Books()
    # Late windows write nothing.
    world.write(NewWindows(2, MODEL, score(2), Cursor(3, 2), tags=TAGS))
    assert {key[-1:] for key in world.rows()} == {keys.HEAD, keys.REQUEST}
    await bill(world, books)
    assert books.lines == [LINE]
    left = [key for key in world.partition.rows if key[:1] in (keys.SESSION, keys.SESSION_OPEN)]
    # A derived id stays taken.
    assert left == [world.store.row_key(SESSION, keys.HEAD)] * derived
    assert world.store.opened(SESSION) is None


async def test_deleted_session_without_opening_is_removed_unbilled() -> None:
    """An owner deleted it and lost the partition; the next one finds its last windows, and folds the deletion again."""
    world, books = analysed(Deleted("c")), Books()
    del world.partition.rows[world.store.row_key(SESSION, keys.REQUEST)]
    world.store.remember(SESSION, world.store.read_head(SESSION))
    world.store.on_eviction(SESSION)
    await bill(world, books)
    assert books.lines == []
    assert not [key for key in world.partition.rows if key[:1] in (keys.SESSION, keys.SESSION_OPEN)]


def test_running_session_is_not_billed_before_full_step() -> None:
    head = analysed().head
    assert (head.windows, head.meterable, head.unmetered) == (2, 0, False)


@given(st.integers(0, 5 * METER_WINDOWS), st.integers(0, 5), st.booleans())
def test_billing_steps_add_up_to_total_audio(windows: int, billed: int, predicts: bool) -> None:
    opened = Opened("c", "stream", "audio/wav", "p", 2000, 500, at=BEGUN)
    lines = list(charges(SESSION, opened, Metered("", windows, predicts)))
    audio = windows * 2000 if predicts else windows and 1500 + windows * 500
    assert sum(line.audio_ms for line in lines) == audio
    assert [line.step for line in lines] == list(range(-(-windows // METER_WINDOWS)))
    # Shifted by the audio before.
    for before, line in pairwise(lines):
        assert line.at_ms == before.at_ms + before.audio_ms
    early = min(billed * METER_WINDOWS, windows - windows % METER_WINDOWS)
    first = charges(SESSION, opened, Metered("", early, predicts))
    assert [*first, *charges(SESSION, opened, Metered("", windows, predicts), early)] == lines
