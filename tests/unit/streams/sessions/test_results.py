"""The results agent: blocks, progress, consumed chunk rows, and impossible results."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.batch import write_draft
from streams.folding.draft import ERASED_ROWS, Draft
from streams.folding.fold import Changes
from streams.sessions.results import SessionResults
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import MemoryPartition, delivered, drafting
from topics import keys, rows
from topics.errors import EarshotError
from topics.folding import AudioRow
from topics.sessions.records import Cursor, Failed, Opened, Scored, SessionResult, Tuned
from topics.sessions.rows import BLOCK_WINDOWS
from topics.sessions.rules import MOST_TUNED, SessionHead, SessionState
from topics.sessions.sounds import SoundRule

SESSION = "S" * 24
TAGS = 3
MODEL = "m@0"


class House:
    """A partition with one session of `chunks` chunks, and the agent."""

    def __init__(self, chunks: int = 4) -> None:
        self.partition = MemoryPartition()
        self.store = SessionStore(self.partition)
        self.woken: list[str] = []
        self.leftovers: list[str] = []
        self.verdicts = Verdicts()
        self.results = SessionResults(self.announce, self.verdicts)
        with drafting(self.store) as draft:
            draft.put_request_row(SESSION, Opened("o", "stream", "audio/wav", "p", 1000, 500))
            draft.put_head(SESSION, SessionHead("stream", None, 0, 0, next=chunks))
            for number in range(chunks):
                draft.put(
                    keys.row_key(keys.SESSION, SESSION, keys.AUDIO, number), rows.encode(AudioRow(100 + number, 1, b""))
                )
                self.store.references.add(100 + number)

    def announce(self, changes: Changes) -> None:
        self.woken += changes.changed
        self.leftovers += changes.leftovers

    def fold(self, *results: SessionResult, session: str = SESSION) -> None:
        draft = Draft(self.store)
        for offset, result in enumerate(results):
            self.results.fold(draft, delivered(offset, session, result))
            draft.keep()
        write_draft(draft, self.results)

    @property
    def head(self) -> SessionHead:
        head = self.store.head(SESSION)
        assert head is not None
        return head

    @property
    def scores(self) -> bytes:
        return b"".join(block.scores for block in self.store.blocks(SESSION, 0, 1000))


@pytest.fixture
def house() -> House:
    return House()


def windows(first: int, count: int) -> bytes:
    return b"".join(bytes([number % 256] * TAGS) for number in range(first, first + count))


def scored(first: int, count: int, **extra: object) -> Scored:
    return Scored(first, MODEL, windows(first, count), Cursor(chunks=1), tags=TAGS, **extra)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=8))
def test_blocks_are_independent_of_write_steps(steps: list[int]) -> None:
    house, first = House(), 0
    for count in steps:
        house.fold(scored(first, count))
        first += count
    assert house.scores == windows(0, first)
    assert house.head.windows == first
    stored = house.store.blocks(SESSION, 0, 1000)
    assert [len(block.scores) for block in stored[:-1]] == [BLOCK_WINDOWS * TAGS] * (len(stored) - 1)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 40))
def test_embeddings_align_with_their_windows(steps: list[int], back: int) -> None:
    house, first = House(), 0

    def looks(start: int, count: int) -> bytes:
        return b"".join(bytes([number % 256, 7]) for number in range(start, start + count))

    for count in steps:
        house.fold(scored(first, count, looks=looks(first, count)))
        first += count
    again = max(0, first - back)
    house.fold(scored(again, first - again + 1, looks=looks(again, first - again + 1)))
    blocks = house.store.blocks(SESSION, 0, 1000)
    assert b"".join(block.looks for block in blocks) == looks(0, first + 1)
    assert all(2 * len(block.scores) == len(block.looks) * TAGS for block in blocks)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40))
def test_redelivered_record_is_written_in_place(known: int, back: int, count: int) -> None:
    house = House()
    house.fold(scored(0, known))
    first = max(0, known - back)
    house.fold(scored(first, count))
    assert house.scores == windows(0, max(known, first + count))


def test_unneeded_chunks_are_released(house: House) -> None:
    house.fold(Scored(0, MODEL, windows(0, 2), Cursor(3, keep=2), dropped=0, tags=TAGS))
    assert house.store.audio(SESSION, 1, 2) == []
    assert house.store.audio(SESSION, 2, 3) != []
    assert house.store.references.lowest() == 102


def test_failure_releases_audio_and_keeps_windows(house: House) -> None:
    house.fold(scored(0, 2), Failed("chunk 1: damaged"))
    assert (house.head.error, house.head.state, house.head.windows) == ("chunk 1: damaged", SessionState.READONLY, 2)
    assert (house.head.finished, house.head.in_progress) == (True, False)
    assert house.store.references.lowest() is None
    assert house.store.audio(SESSION, 0, 9) == []
    house.fold(scored(2, 5))
    assert house.head.windows == 2


@pytest.mark.parametrize("final", [True, False], ids=["finished", "failed"])
def test_audio_of_long_session_is_dropped_in_steps(final: bool) -> None:
    """Many tiny chunks hold neither the loop nor the log's queue."""
    chunks = 2 * ERASED_ROWS + 500
    house = House(chunks)
    logged = len(house.partition.changelog)
    house.fold(Scored(0, MODEL, b"", Cursor(chunks, chunks), final=True) if final else Failed("damaged"))
    assert house.leftovers == [SESSION]
    assert len(house.partition.changelog) - logged < ERASED_ROWS + 10
    assert house.store.references.lowest() == 100 + ERASED_ROWS
    assert list(house.store.unsettled_ids()) == [SESSION], "the next owner finds what is left"
    assert [house.store.purge(SESSION) for _ in range(2)] == [False, True]
    assert house.store.audio(SESSION, 0, chunks) == []
    assert house.store.references.lowest() is None
    assert list(house.store.unsettled_ids()) == []
    assert house.head.ended


def test_results_of_deleted_session_are_ignored(house: House) -> None:
    before = dict(house.partition.rows)
    house.fold(scored(0, 2), Failed("late"), session="T" * 24)
    assert house.partition.rows == before
    assert house.woken == []


def test_readers_are_woken_once_per_batch(house: House) -> None:
    house.fold(scored(0, 2), scored(2, 2))
    assert house.woken == [SESSION]
    assert house.results.windows == 4


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        (Scored(0, MODEL, b"abcd", Cursor()), "4 bytes of scores are no whole windows of 0 tags"),
        (Scored(0, MODEL, b"abcd", Cursor(), tags=TAGS), "4 bytes of scores are no whole windows of 3 tags"),
        (scored(5, 1), "only 0 are known"),
    ],
)
def test_impossible_results_are_rejected(result: Scored, cause: str) -> None:
    with pytest.raises(EarshotError, match=cause):
        House().fold(result)


async def test_redelivered_rules_apply_once_from_next_window(house: House) -> None:
    first, second = Tuned("t1", SoundRule(2, 3)), Tuned("t2", sound_rules={"Siren": SoundRule(margin_ms=0)})
    verdict = house.verdicts.expect("t1")
    house.fold(scored(0, 5), first, scored(5, 2))
    assert (await verdict).status == 204
    house.fold(second, first)
    opened = house.store.opened(SESSION)
    assert opened is not None
    assert [(one.first, one.rule, one.by_name) for one in opened.rules] == [
        (0, SoundRule(), {}),
        (5, SoundRule(2, 3), {}),
        (7, SoundRule(2, 3), {"Siren": SoundRule(margin_ms=0)}),
    ]
    more = [f"more {number}" for number in range(MOST_TUNED)]
    verdicts = [house.verdicts.expect(command) for command in more]
    house.fold(*(Tuned(command, SoundRule()) for command in more))
    opened = house.store.opened(SESSION)
    assert opened is not None
    assert len(opened.tuned) == MOST_TUNED
    assert [(await verdict).status for verdict in verdicts] == [204] * (MOST_TUNED - 2) + [400] * 2
    again = house.verdicts.expect(more[0])
    house.fold(Tuned(more[0], SoundRule()))
    assert (await again).status == 204, "one that was taken, delivered again"


def test_redelivered_rules_of_ended_session_are_logged_again(house: House) -> None:
    """The changelog may lack them, while the table has the session's end already."""
    house.fold(Tuned("t1", SoundRule(2, 3)), scored(0, 2, final=True))
    rules, request = (house.store.row_key(SESSION, kind) for kind in (keys.RULES, keys.REQUEST))
    known = house.partition.rows[rules], house.partition.rows[request]
    for command, logged in (("t1", known), ("t2", (None, None))):
        before = len(house.partition.changelog)
        house.fold(Tuned(command, SoundRule(2, 3)))
        fresh = dict(house.partition.changelog[before:])
        assert (fresh.get(rules), fresh.get(request)) == logged
    assert (house.partition.rows[rules], house.partition.rows[request]) == known


@pytest.mark.parametrize(("session", "status"), [(SESSION, 400), ("T" * 24, 404)])
async def test_rules_of_ended_session_do_not_change(house: House, session: str, status: int) -> None:
    house.fold(scored(0, 2, final=True))
    verdict = house.verdicts.expect("t1")
    house.fold(Tuned("t1", SoundRule(2, 3)), session=session)
    assert (await verdict).status == status
    opened = house.store.opened(SESSION)
    assert opened is not None
    assert not opened.tuned
