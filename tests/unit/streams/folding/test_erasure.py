"""Long sessions are erased in steps: each is bounded, and whatever is left when a node dies is found again."""

from __future__ import annotations

import pytest

from streams.folding import draft as draft_module
from streams.folding import store as store_module
from streams.folding.draft import ERASED_ROWS, Draft
from streams.folding.store import TIDIED_ROWS
from streams.jobs.store import JobStore
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import MemoryPartition, drafting, replay
from topics import keys, rows
from topics.jobs.options import Service
from topics.jobs.rules import Entry, EntryState, JobHead, JobState
from topics.sessions.rows import Block
from topics.sessions.rules import SessionHead, SessionState

ONE, TWO = "A" * 24, "B" * 24
LIVE = SessionHead("stream", None, touched=0, command=0)
FINISHED = SessionHead("stream", None, 0, 0, SessionState.READONLY, finished=True)


class House:
    """A partition with two sessions of many rows; notes how many rows each write has."""

    def __init__(self, head: SessionHead, blocks: int) -> None:
        self.partition = MemoryPartition()
        self.writes: list[int] = []
        write = self.partition.write

        def noted(changes: dict[bytes, bytes | None]) -> None:
            self.writes.append(len(changes))
            write(changes)

        self.partition.write = noted  # type: ignore[method-assign, assignment]
        self.store = SessionStore(self.partition)
        for session in (ONE, TWO):
            with drafting(self.store) as draft:
                draft.put_head(session, head)
                for number in range(blocks):
                    draft.put(keys.row_key(keys.SESSION, session, keys.RESULT, number), rows.encode(Block("m", b"s")))
        self.writes.clear()

    def erase(self) -> bool:
        draft = Draft(self.store)
        ended = draft.erase(ONE)
        draft.keep()
        draft.apply()
        return ended

    def restart(self, changelog: int | None = None) -> None:
        """Begin anew, from so many records of the changelog where it says so."""
        if changelog is not None:
            old, self.partition = self.partition, MemoryPartition()
            self.partition.changelog = old.changelog[:changelog]
            self.partition.rows = replay({}, self.partition.changelog)
        self.store = SessionStore(self.partition)

    def left(self, session: str = ONE) -> int:
        prefix = keys.row_prefix(keys.SESSION, session)
        return sum(key.startswith(prefix) for key in self.partition.rows)

    def tidy_up(self) -> int:
        """Do what the next owner does; return the steps it took."""
        steps = 0
        for session in list(self.store.unsettled_ids()):
            if self.store.head(session) is None:
                steps += 1
                while not self.store.tidy(session):
                    steps += 1
        return steps


@pytest.mark.parametrize("head", [LIVE, FINISHED], ids=["live", "finished"])
def test_a_long_session_is_gone_at_once_and_its_rows_go_in_steps(head: SessionHead) -> None:
    house = House(head, blocks=2 * ERASED_ROWS + 500)
    assert not house.erase()
    assert house.store.head(ONE) is None
    assert house.partition.get(keys.row_key(keys.SESSION, ONE, keys.HEAD)) is None
    assert ONE in list(house.store.unsettled_ids())
    assert house.left() == ERASED_ROWS + 501
    assert house.tidy_up() == 2
    assert house.left() == 0
    assert list(house.store.unsettled_ids()) == ([TWO] if head is LIVE else [])
    assert house.left(TWO) == 2 * ERASED_ROWS + 501
    assert max(house.writes) <= max(ERASED_ROWS, TIDIED_ROWS) + 2


def test_a_short_session_is_gone_in_one_step() -> None:
    house = House(LIVE, blocks=20)
    assert house.erase()
    assert (house.left(), len(house.writes), list(house.store.unsettled_ids())) == (0, 1, [TWO])


@pytest.mark.parametrize("head", [LIVE, FINISHED], ids=["live", "finished"])
def test_a_crash_between_the_steps_leaves_what_the_next_owner_tidies(
    monkeypatch: pytest.MonkeyPatch, head: SessionHead
) -> None:
    monkeypatch.setattr(draft_module, "ERASED_ROWS", 10)
    monkeypatch.setattr(store_module, "TIDIED_ROWS", 10)
    house = House(head, blocks=35)
    assert not house.erase()
    assert not house.store.tidy(ONE)
    assert 0 < house.left() < 30
    house.restart()
    assert ONE in list(house.store.unsettled_ids())
    house.tidy_up()
    assert house.left() == 0
    assert ONE not in list(house.store.unsettled_ids())


@pytest.mark.parametrize("head", [LIVE, FINISHED], ids=["live", "finished"])
def test_wherever_the_changelog_is_cut_between_the_steps_the_rest_is_found(
    monkeypatch: pytest.MonkeyPatch, head: SessionHead
) -> None:
    """The deletion is folded again when it may not be in the changelog, and not when it is: both are tried."""
    monkeypatch.setattr(draft_module, "ERASED_ROWS", 4)
    monkeypatch.setattr(store_module, "TIDIED_ROWS", 4)
    template = House(head, blocks=12)
    before = len(template.partition.changelog)
    template.erase()
    folded = len(template.partition.changelog)
    template.tidy_up()
    for cut in range(before, len(template.partition.changelog) + 1):
        house = House(head, blocks=12)
        house.erase()
        house.tidy_up()
        house.restart(changelog=cut)
        if cut < folded:
            house.erase()
        house.tidy_up()
        assert house.left() == 0, cut
        assert ONE not in list(house.store.unsettled_ids())
        rebuilt = replay({}, house.partition.changelog)
        assert not [key for key in rebuilt if key.startswith(keys.row_prefix(keys.SESSION, ONE))]


def test_what_is_written_to_an_id_in_the_same_batch_goes_too() -> None:
    house = House(LIVE, blocks=3)
    draft = Draft(house.store)
    draft.put(keys.row_key(keys.SESSION, ONE, keys.AUDIO, 7), b"")
    draft.keep()
    draft.put(keys.row_key(keys.SESSION, ONE, keys.AUDIO, 8), b"")
    draft.erase(ONE)
    draft.keep()
    draft.apply()
    assert house.left() == 0


def test_a_removed_job_keeps_its_head_and_while_it_is_not_billed_its_acceptance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft_module, "ERASED_ROWS", 10)
    monkeypatch.setattr(store_module, "TIDIED_ROWS", 10)
    entry = Entry(Service.SOUND, EntryState.SUCCESS, "r")
    for rest, kept in (
        (JobHead(JobState.REMOVED, 1, 0, "u", entries=(entry,)), {keys.HEAD, keys.REQUEST}),
        (JobHead(JobState.REMOVED, 1, 0, "u"), {keys.HEAD}),
    ):
        partition = MemoryPartition()
        store = JobStore(partition)
        with drafting(store) as draft:
            draft.put_head(ONE, JobHead(JobState.COMPLETED, 0, 0, "u", entries=(entry,)))
            draft.put(store.row_key(ONE, keys.REQUEST), b"accepted")
            for number in range(35):
                draft.put(keys.portion_key(ONE, Service.SOUND, number), b"portion")
        with drafting(store) as draft:
            assert not draft.erase(ONE, rest)
        store = JobStore(partition)
        assert list(store.unsettled_ids()) == [ONE]
        while not store.tidy(ONE):
            pass
        left = {key for key in partition.rows if key.startswith(store.prefix(ONE))}
        assert left == {store.row_key(ONE, kind) for kind in kept}
        assert store.head(ONE) == rest
        # It is not billed yet, so it stays in the index.
        assert list(store.unsettled_ids()) == ([ONE] if rest.unbilled else [])
