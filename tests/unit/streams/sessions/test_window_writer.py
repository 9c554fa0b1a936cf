"""New windows: the changelog first, then the table; blocks, released audio, rules, and what may come in between."""

from functools import partial
from typing import Final
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.disk import DiskFull
from streams.folding.draft import ERASED_ROWS
from streams.workers.process import StateLost
from tests.unit.streams.sessions.rows import delivered, replay
from tests.unit.streams.sessions.world import MODEL, SESSION, TAGS, World
from tests.unit.streams.verdicts import expect
from topics import keys, rows
from topics.choices import SoundRule
from topics.errors import NotOwned, RecordError
from topics.sessions.commands import MOST_TUNED
from topics.sessions.records import Chunk, Cursor, Deleted, Failed, NewWindows, Opened, Sealed, SessionCommand, Tuned
from topics.sessions.rows import BLOCK_WINDOWS, Block
from topics.sessions.rules import SessionState


class House(World):
    """A partition with a stream of some chunks, which are at the offsets from 1 on."""

    tidies = False

    def __init__(self, chunks: int = 4) -> None:
        super().__init__()
        self.take(Opened("o", "stream", "audio/wav", "p", 1000, 500))
        self.take(*(Chunk(str(number), number, b"s") for number in range(chunks)))
        self.announced.clear()

    @property
    def woken(self) -> list[str]:
        return [session for changes in self.announced for session in changes.changed]

    @property
    def scores(self) -> bytes:
        return b"".join(block.scores for block in self.store.blocks(SESSION, 0, 1000))


@pytest.fixture
def house() -> House:
    return House()


def windows(first: int, count: int) -> bytes:
    return b"".join(bytes([number % 256] * TAGS) for number in range(first, first + count))


ONE: Final = Cursor(1)


def made(first: int, count: int, cursor: Cursor = ONE, *, final: bool = False, embeddings: bytes = b"") -> NewWindows:
    return NewWindows(first, MODEL, windows(first, count), cursor, final, TAGS, embeddings)


@given(st.lists(st.integers(1, 40), max_size=8))
def test_blocks_are_independent_of_write_steps(steps: list[int]) -> None:
    """Embeddings are in the blocks of their windows."""
    house, first = House(), 0

    def embeddings(start: int, count: int) -> bytes:
        return b"".join(bytes([number % 256, 7]) for number in range(start, start + count))

    for count in steps:
        house.write(made(first, count, embeddings=embeddings(first, count)))
        first += count
    assert (house.scores, house.head.windows) == (windows(0, first), first)
    stored = house.store.blocks(SESSION, 0, 1000)
    assert b"".join(block.embeddings for block in stored) == embeddings(0, first)
    assert all(2 * len(block.scores) == len(block.embeddings) * TAGS for block in stored)
    assert [len(block.scores) for block in stored[:-1]] == [BLOCK_WINDOWS * TAGS] * (len(stored) - 1)
    for number, block in enumerate(stored):
        assert house.store.blocks(SESSION, number, number + 1) == [block]


def test_windows_are_shown_once_changelog_has_them(house: House) -> None:
    """With the cursor and the end, and audio is released only then."""
    house.put(made(0, 2, Cursor(4, 4), final=True))
    assert (house.head.windows, house.head.cursor, house.head.finished, house.scores) == (0, Cursor(), False, b"")
    assert house.store.references.lowest() == 1
    assert (house.woken, house.told) == ([], [])
    house.show()
    assert (house.head.windows, house.head.cursor, house.head.finished) == (2, Cursor(4, 4), True)
    assert house.scores == windows(0, 2)
    assert house.store.references.lowest() is None
    assert (house.woken, house.told) == ([SESSION], [None])
    # The table never has what the changelog has not.
    logged = dict(house.partition.changelog)
    assert all(logged[key] == value for key, value in house.partition.rows.items() if key[25:] == keys.NEWEST)


@pytest.mark.parametrize("new", [made(1, 1), made(0, 2), made(2, 1, Cursor(0))], ids=["gap", "again", "older cursor"])
def test_windows_that_do_not_follow_are_refused(house: House, new: NewWindows) -> None:
    house.write(made(0, 2) if new.first != 1 else made(0, 0))
    before = dict(house.partition.rows)
    with pytest.raises(StateLost):
        house.put(new)
    assert house.partition.rows == before


def test_block_that_lacks_windows_is_a_fault(house: House) -> None:
    house.write(made(0, 2))
    newest = house.store.newest(SESSION)
    assert newest is not None
    key = house.store.row_key(SESSION, keys.NEWEST)
    house.partition.rows[key] = rows.encode(newest.__class__(2, Cursor(1), False, 0, (), Block(MODEL, b"abc")))
    with pytest.raises(RecordError, match="holds 3 bytes before window 2"):
        house.put(made(2, 1))


def test_failure_releases_audio_and_keeps_windows(house: House) -> None:
    house.write(made(0, 2))
    house.take(Failed("analysis", "chunk 1: damaged", 2))
    assert (house.head.error, house.head.state, house.head.windows) == ("chunk 1: damaged", SessionState.READONLY, 2)
    assert (house.head.finished, house.head.in_progress) == (True, False)
    assert house.store.references.lowest() is None
    assert house.store.audio(SESSION, 0, 9) == []
    house.write(made(2, 5))
    assert house.head.windows == 2


@pytest.mark.parametrize("command", [Deleted("d"), Failed("analysis", "damaged", 15)], ids=["deletion", "failure"])
def test_windows_on_their_way_do_not_outlive_end_of_session(house: House, command: SessionCommand) -> None:
    """Neither in the table nor in the changelog, which has them already."""
    house.write(made(0, 15))
    house.put(made(15, 5))
    house.take(command)
    before = dict(house.partition.rows)
    house.show()
    assert house.partition.rows == before
    assert house.told == [None, None]
    restored = replay({}, house.partition.changelog)
    assert {key: value for key, value in restored.items() if key[:1] == keys.SESSION} == {
        key: value for key, value in before.items() if key[:1] == keys.SESSION
    }


@pytest.mark.parametrize("trouble", ["another owner's records are read", "the disk is full"])
def test_windows_wait(house: House, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    with monkeypatch.context() as waiting:
        if trouble == "the disk is full":
            waiting.setattr(house.partition, "write", mock.Mock(side_effect=DiskFull(trouble)))
        else:
            waiting.setattr(house, "may_show", False)
        house.write(made(0, 2, Cursor(3, 2)))
        assert (house.head.windows, house.told, house.store.behind) == (0, [], {SESSION})
        assert house.store.references.lowest() == 1
    house.show()
    assert (house.head.windows, house.told, house.store.behind) == (2, [None], set())
    # Chunks that no later window needs are released.
    assert house.store.references.lowest() == 3
    assert [len(house.store.audio(SESSION, number, number + 1)) for number in range(4)] == [0, 0, 1, 1]


def test_windows_of_a_head_that_became_unreadable_end_with_the_error(house: House) -> None:
    house.put(made(0, 2))
    house.store.remember(SESSION, None)
    house.partition.rows[house.store.row_key(SESSION, keys.HEAD)] = b"damaged"
    house.show()
    assert [type(told) for told in house.told] == [RecordError]
    assert house.store.behind == set()


def test_first_windows_name_the_head_that_the_changelog_must_have(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_first = mock.Mock(side_effect=house.partition.log_first)
    monkeypatch.setattr(house.partition, "log_first", log_first)
    house.write(made(0, 2), made(2, 1))
    heads = [call.args[2] for call in log_first.call_args_list]
    assert heads == [house.store.row_key(SESSION, keys.HEAD), None]


def test_windows_of_lost_partition_are_given_up(house: House) -> None:
    house.put(made(0, 2))
    house.writer.lose({house.partition.number})
    assert isinstance(house.told[0], NotOwned)
    house.show()
    assert house.head.windows == 0


@pytest.mark.parametrize("final", [True, False], ids=["finished", "failed"])
def test_audio_of_long_session_is_dropped_in_steps(final: bool) -> None:
    """Many tiny chunks hold neither the loop nor the log's queue."""
    chunks = 2 * ERASED_ROWS + 500
    house = House(chunks)
    logged = len(house.partition.changelog)
    if final:
        house.take(Sealed("s"))
        house.write(NewWindows(0, MODEL, b"", Cursor(chunks, chunks), final=True))
    else:
        house.take(Failed("analysis", "damaged", 0))
    assert [list(changes.leftovers) for changes in house.announced][-1] == [SESSION]
    assert len(house.partition.changelog) - logged < ERASED_ROWS + 10
    assert house.store.references.lowest() == 1 + ERASED_ROWS
    assert list(house.store.unsettled_ids()) == [SESSION], "the next owner finds what is left"
    assert [house.store.purge(SESSION) for _ in range(2)] == [False, True]
    assert house.store.audio(SESSION, 0, chunks) == []
    assert house.store.references.lowest() is None
    assert list(house.store.unsettled_ids()) == []
    assert house.head.ended


def test_readers_are_woken_once_per_group(house: House) -> None:
    house.put(made(0, 2))
    house.take(Chunk("c", 4, b"e"))
    house.announced.clear()
    house.show()
    assert house.woken == [SESSION]
    assert house.writer.windows == 2


async def test_rules_begin_behind_windows_that_are_made(house: House) -> None:
    """They are told once the changelog has them; a redelivery keeps their window."""
    first, second = Tuned("t1", SoundRule(2, 3)), Tuned("t2", sound_rules={"Siren": SoundRule(margin=0)})
    verdict = expect(house.verdicts, "t1")
    house.write(made(0, 5))
    house.put(made(5, 2))
    house.take(first)
    assert not verdict.done()
    house.show()
    assert (await verdict).status == 204
    house.write(made(7, 1))
    house.again(1)
    house.take(second)
    assert [(one.first, one.rule, one.by_name) for one in house.opened.rules] == [
        (0, SoundRule(), {}),
        (7, SoundRule(2, 3), {}),
        (8, SoundRule(2, 3), {"Siren": SoundRule(margin=0)}),
    ]
    more = [f"more {number}" for number in range(MOST_TUNED)]
    verdicts = [expect(house.verdicts, command) for command in more]
    house.take(*(Tuned(command, SoundRule()) for command in more))
    house.show()
    assert len(house.opened.tuned) == MOST_TUNED
    assert [(await verdict).status for verdict in verdicts] == [204] * (MOST_TUNED - 2) + [400] * 2


def test_redelivered_rules_of_ended_session_are_logged_again(house: House) -> None:
    """The changelog may lack them, while the table has the session's end already."""
    house.take(Tuned("t1", SoundRule(2, 3)))
    house.write(made(0, 2, final=True))
    rules, request = (house.store.row_key(SESSION, kind) for kind in (keys.RULES, keys.REQUEST))
    known = house.partition.rows[rules], house.partition.rows[request]
    more = partial(house.take, Tuned("t2", SoundRule(2, 3)))
    for fold, logged in ((partial(house.again, 1), known), (more, (None, None))):
        before = len(house.partition.changelog)
        fold()
        fresh = dict(house.partition.changelog[before:])
        assert (fresh.get(rules), fresh.get(request)) == logged
    assert (house.partition.rows[rules], house.partition.rows[request]) == known


@pytest.mark.parametrize(("session", "status"), [(SESSION, 400), ("T" * 24, 404)])
async def test_rules_of_ended_session_do_not_change(house: House, session: str, status: int) -> None:
    house.write(made(0, 2, final=True))
    verdict = expect(house.verdicts, "t1")
    house.log.append(delivered(len(house.log), session, Tuned("t1", SoundRule(2, 3))))
    house.take()
    assert (await verdict).status == status
    assert not house.opened.tuned
