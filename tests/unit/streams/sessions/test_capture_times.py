"""When the audio at any place of a session was captured, by its anchors."""

import msgspec
import pytest

from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.test_crashes import RAW, committed
from tests.unit.streams.sessions.world import BEGUN, SESSION, World
from topics import keys
from topics.sessions.records import Chunk

#: 100 ms each.
PIECE = bytes(100)
TOLD = {1: BEGUN - 5000, 3: BEGUN + 9000, 4: BEGUN + 20_000}


@pytest.fixture
def world() -> World:
    return committed(RAW, *(Chunk("c", number, PIECE, captured=TOLD.get(number, 0)) for number in range(6)))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("position", "at", "told"),
    [
        (0, BEGUN, False),
        (99, BEGUN + 99, False),
        (100, BEGUN - 5000, True),
        (299, BEGUN - 4801, True),
        (300, BEGUN + 9000, True),
        (399, BEGUN + 9099, True),
        (400, BEGUN + 20_000, True),
        (100_000, BEGUN + 119_600, True),
    ],
)
def test_time_follows_from_the_anchor_before(world: World, position: int, at: int, told: bool, restarts: bool) -> None:
    if restarts:
        world.crash(1.0, local=False)
    assert world.store.time_of(SESSION, position) == (at, told)


def test_stand_by_reads_anchors_newer_than_its_head(world: World) -> None:
    """Heads are logged later than these rows."""
    standby = SessionStore(world.partition)
    standby.heads_most = 0
    head = world.store.row_key(SESSION, keys.HEAD)
    world.partition.write({head: world.store.head_row(msgspec.structs.replace(world.head, anchor=None))})
    assert standby.time_of(SESSION, 450) == (BEGUN + 20_050, True)
    assert standby.time_of(SESSION, 50) == (BEGUN + 50, False)


def test_session_without_times_follows_from_its_opening() -> None:
    world = committed(RAW, Chunk("c", 0, PIECE))
    assert world.store.time_of(SESSION, 250) == (BEGUN + 250, False)
