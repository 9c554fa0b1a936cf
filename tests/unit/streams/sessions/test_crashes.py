"""Rows that the changelog missed in a crash are written again when the log is folded again."""

from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

from streams.folding import draft, head_store
from tests.unit.streams.sessions.world import BEGUN, IDLE_MS, SESSION, World
from topics import keys
from topics.choices import SoundRule
from topics.sessions import commands
from topics.sessions.records import (
    Chunk,
    Deleted,
    Expired,
    Failed,
    Metered,
    Opened,
    Renamed,
    Sealed,
    SessionCommand,
    SourceNoted,
    Tuned,
)

OPENED = Opened("c", "stream", "audio/wav", "p", 1000, 500)
A, B = Chunk("c", 0, b"a", b"k1"), Chunk("c", 1, b"b")
#: Raw PCM of 1,000 bytes a second, whose client tells times.
RAW = msgspec.structs.replace(OPENED, content_type="audio/x-raw; rate=1000; format=u8")
TOLD = [Chunk("c", number, bytes(100), captured=BEGUN + number * 1000) for number in range(4)]
LOST, BACK = SourceNoted("n", "source.lost", 7, "no answer"), SourceNoted("n", "source.back")
HEAR: Final = "hear"
#: A step of a session: a command that is folded, chunks that are analysed, or notes that the analysis comes to.
Event = SessionCommand | int | str
#: A session that is analysed and billed.
FINISHED: Sequence[Event] = (OPENED, A, B, Sealed("c"), 2, 1, Metered("ledger", 2))


def committed(*events: Event) -> World:
    world = World()
    live(world, *events)
    world.commit()
    return world


def live(world: World, *events: Event) -> None:
    for event in events:
        if isinstance(event, int):
            world.analyse(event)
        elif isinstance(event, str):
            world.hear()
        else:
            world.take(event)


@pytest.mark.parametrize("recent", [1, 32], ids=["few in the head", "all in the head"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [OPENED, A], id="opening"),
        pytest.param([OPENED], [A], id="chunk"),
        pytest.param([OPENED, A], [B], id="chunk whose predecessor gets a row"),
        pytest.param([msgspec.structs.replace(OPENED, kind="file")], [A, B], id="chunks of a file"),
        pytest.param([OPENED], [Chunk("c", None, b"a", predict=True)], id="chunk of predict"),
        pytest.param([OPENED, A], [Sealed("c")], id="seal"),
        pytest.param([OPENED, A, B], [2], id="windows"),
        pytest.param([OPENED, A, B], [1, Failed("analysis", "damaged", 1)], id="failure"),
        pytest.param([OPENED, A, B, Sealed("c"), 2], [1, Metered("ledger", 2)], id="end and bill"),
        pytest.param([], [OPENED, A, 1, Tuned("t", SoundRule(2, 2)), B], id="rules behind a window"),
        pytest.param([], [OPENED, Renamed("r", "door", {"room": "hall"}), A], id="name"),
        pytest.param([OPENED, Renamed("r", "door")], [Renamed("r", None, {}), Renamed("r", "gate")], id="later names"),
        pytest.param([], [OPENED, Renamed("r", "door"), Tuned("t", SoundRule(2, 2))], id="name and rules"),
        pytest.param(FINISHED, [Renamed("r", "door")], id="name of a finished session"),
        pytest.param([RAW], TOLD, id="times"),
        pytest.param([RAW, *TOLD[:2]], TOLD[2:], id="later times"),
        pytest.param([OPENED, A], [LOST], id="note"),
        pytest.param([], [OPENED, LOST, HEAR, A, BACK, 1, HEAR, B], id="notes between windows"),
        pytest.param([OPENED, LOST, HEAR], [A, 1, BACK, LOST, HEAR], id="later notes"),
        pytest.param([RAW, *TOLD, LOST, 4, HEAR], [Deleted("c")], id="deletion with times and notes"),
        pytest.param([OPENED, A], [Deleted("c")], id="deletion"),
        pytest.param(FINISHED, [Deleted("c")], id="deletion of a finished session"),
        pytest.param([OPENED, A, B, 2], [Sealed("c"), 1, Deleted("c"), Metered("ledger", 2)], id="deletion and bill"),
        pytest.param([OPENED, A], [Expired("sweep", 1, BEGUN + IDLE_MS)], id="expiry"),
    ],
)
def test_refolding_restores_rows(
    monkeypatch: pytest.MonkeyPatch, before: Sequence[Event], after: Sequence[Event], recent: int
) -> None:
    """The changelog loses what came after; then a table is made from the changelog alone."""
    monkeypatch.setattr(commands, "MOST_RECENT", recent)
    world = committed(*before)
    stored = world.rows()
    live(world, *after)
    rows = world.rows()
    assert rows != stored
    world.crash(0.0, local=True)
    world.commit()
    world.crash(1.0, local=False)
    assert world.rows() == rows
    if rows:
        assert any(due <= world.head.touched + IDLE_MS for due, _ in world.store.due(2**62, 9))


@pytest.mark.parametrize("standby", [False, True])
@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("cut", range(10))
def test_deletion_in_steps_survives_any_changelog_cut(
    monkeypatch: pytest.MonkeyPatch, cut: int, derived: bool, standby: bool
) -> None:
    monkeypatch.setattr(draft, "ERASED_ROWS", 2)
    monkeypatch.setattr(head_store, "TIDIED_ROWS", 1)
    world = committed(msgspec.structs.replace(OPENED, derived=derived), *FINISHED[1:])
    assert list(world.store.unsettled_ids()) == []
    world.take(Deleted("c"))
    # Only the tombstone of a derived id stays.
    assert list(world.rows()) == [world.store.row_key(SESSION, keys.HEAD)] * derived
    deletions = len(world.partition.changelog) - world.flushed
    assert deletions < 10
    world.crash((cut + 0.5) / deletions if cut < deletions else 1.0, local=False, standby=standby)
    assert list(world.rows()) == [world.store.row_key(SESSION, keys.HEAD)] * derived


def test_finished_session_still_in_index_keeps_rows() -> None:
    """A changelog may end between its head and the entry of the index."""
    world = committed(*FINISHED)
    rows = world.rows()
    world.partition.write({world.store.open_key(SESSION): b""})
    world.commit()
    world.crash(1.0, local=False)
    assert world.rows() == rows
    assert list(world.store.unsettled_ids()) == []


def test_chunks_folded_after_their_windows_need_no_row() -> None:
    """The windows of another owner may be known before its commands."""
    world, other = (committed(OPENED, A) for _ in range(2))
    live(other, B, 2)
    newest = world.store.row_key(SESSION, keys.NEWEST)
    world.partition.write({newest: other.partition.rows[newest]})
    world.store.remember(SESSION, None)
    world.take(B)
    assert (world.head.next, world.head.windows, world.head.in_progress) == (2, 2, False)
    assert world.store.audio(SESSION, 0, 2) == []


def test_note_that_was_heard_keeps_its_window_without_its_head() -> None:
    """The row that says so may be in the changelog, and the head before it not."""
    world, other = (committed(OPENED, A, 1) for _ in range(2))
    live(other, LOST, HEAR)
    for key in (world.store.row_key(SESSION, keys.NEWEST), world.store.row_key(SESSION, keys.NOTE, 0)):
        world.partition.write({key: other.partition.rows[key]})
    world.store.remember(SESSION, None)
    world.take(LOST)
    assert (world.head.heard, world.head.has_unheard) == (1, False)
    assert [note.window for note in world.store.notes(SESSION, 0)] == [1]


def test_restored_request_gets_its_later_name() -> None:
    """A restored changelog may end with an older request row."""
    world, other = (committed(OPENED) for _ in range(2))
    live(world, Renamed("r", "door", {"room": "hall"}))
    request = world.store.row_key(SESSION, keys.REQUEST)
    world.partition.write({request: other.partition.rows[request]})
    world.again(1)
    assert (world.opened.file_name, world.opened.metadata) == ("door", {"room": "hall"})
