"""Redelivery after a crash at any point gives the rows of a run without one: nothing lost, twice, or out of order."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from streams.sessions.metering import charges
from tests.unit.streams.sessions.histories import histories, opening
from tests.unit.streams.sessions.rows import Delivered, delivered, replay
from tests.unit.streams.sessions.world import IDLE_MS, MODEL, TAGS, Crash, World, score
from topics import keys, rows
from topics.sessions.records import Chunk, Cursor, Deleted, Metered, Scored, Sealed, SessionCommand
from topics.sessions.rows import BLOCK_WINDOWS

SESSION = "S" * 24
Happening = tuple[str, int | Crash]

counts = st.integers(1, 4)
kept = st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0])
batch_sizes = st.sampled_from([1, 1, 2, 1000])
crashes = st.builds(
    Crash,
    kept,
    st.booleans(),
    st.booleans(),
    batch_sizes,
    st.none() | st.tuples(st.integers(0, 6), st.builds(Crash, kept, st.booleans(), st.booleans(), batch_sizes)),
)
commands_ = st.tuples(st.just("commands"), counts)
work = st.tuples(st.just("work"), counts)
happenings: st.SearchStrategy[Happening] = st.one_of(
    commands_,
    commands_,
    work,
    work,
    st.tuples(st.just("analyse"), counts),
    st.tuples(st.just("results"), counts),
    st.tuples(st.just("meter"), counts),
    st.tuples(st.just("commit"), counts),
    st.tuples(st.just("commit"), counts),
    st.tuples(st.just("crash"), crashes),
    st.tuples(st.just("crash"), crashes),
)
stories = st.lists(happenings, min_size=2, max_size=14)


def play(world: World, happening: Happening) -> None:
    what, argument = happening
    if isinstance(argument, Crash):
        world.crash(argument)
        return
    steps: dict[str, Callable[[], None]] = {
        "commands": partial(world.fold_commands, argument),
        "results": partial(world.fold_results, argument),
        "analyse": partial(analyse, world, argument),
        "work": partial(analyse, world, argument),
        "commit": world.commit,
        "meter": world.meter,
    }
    steps[what]()
    if what == "work":
        world.fold_results(len(world.results))


def analyse(world: World, count: int) -> None:
    for session in world.unfinished():
        world.analyse(session, count)


def clean_run(commands: list[Delivered]) -> World:
    world = World(commands)
    world.finish()
    return world


def session_rows(stored: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: value for key, value in stored.items() if key.startswith(keys.SESSION)}


def assert_watched(world: World) -> None:
    """Every session has an entry in the expiry index that comes no later than its end.

    Redelivery may leave an entry too many; the sweeper removes it when it is due.
    """
    due = [keys.parse_due(key) for key in world.partition.rows if key.startswith(keys.SESSION_DUE)]
    for session in world.store.all_ids():
        head = world.head(session)
        assert any(entry <= head.touched + IDLE_MS for entry, of in due if of == session)


def ends(world: World) -> list[World]:
    """Finish, look, and look again after everything was rebuilt from the changelog; nothing was parked."""
    world.finish()
    assert_watched(world)
    rebuilt = copy.copy(world)
    rebuilt.commit()
    rebuilt.crash(Crash(1.0, local=False))
    assert_watched(rebuilt)
    assert world.parked == []
    return [world, rebuilt]


@settings(max_examples=400, deadline=None)
@given(commands=histories(), story=stories)
def test_crashes_leave_no_trace(commands: list[Delivered], story: list[Happening]) -> None:
    world = World(commands)
    for happening in story:
        play(world, happening)
        note(f"{happening}: {world.folded} folded, {len(world.results)} results")
    event(f"crashes: {sum(what == 'crash' for what, _ in story)}")
    clean = clean_run(commands)
    for ended in ends(world):
        assert session_rows(ended.partition.rows) == session_rows(clean.partition.rows)
    assert_metered(world, clean)


def assert_metered(world: World, clean: World) -> None:
    """The ledger has what it would have without a crash; of a session that was deleted, what came before that."""
    kept = set(clean.store.all_ids())
    for ledger in (world.ledger, clean.ledger):
        for session in kept:
            head, opened = clean.head(session), clean.store.opened(session)
            assert opened is not None
            due = charges(session, opened, Metered(head.meterable, bool(head.predicts)))
            assert [charge for (of, _), charge in sorted(ledger.items()) if of == session] == list(due)


@settings(max_examples=150, deadline=None)
@given(commands=histories(damaged=True), story=stories)
def test_crashes_around_damaged_audio_keep_what_was_analysed(commands: list[Delivered], story: list[Happening]) -> None:
    world, clean = World(commands), clean_run(commands)
    for happening in story:
        play(world, happening)
    for ended in ends(world):
        assert readable(ended) == readable(clean)


def readable(world: World) -> dict[str, object]:
    """What a client reads of every session: its windows, and whether and why it ended."""
    found: dict[str, object] = {}
    for session in world.store.all_ids():
        head = world.head(session)
        blocks = world.store.blocks(session, 0, head.windows // BLOCK_WINDOWS + 1)
        scores = b"".join(block.scores for block in blocks)
        found[session] = (head.state, head.error, head.windows, head.finished, scores, head.in_progress)
    return found


@settings(max_examples=150, deadline=None)
@given(commands=histories(), story=stories)
def test_the_log_keeps_what_the_analysis_needs(commands: list[Delivered], story: list[Happening]) -> None:
    """The offsets held are exactly those of the chunk rows: the log is trimmed neither too much nor too little."""
    world = World(commands)
    for happening in story:
        if happening[0] == "crash":
            continue
        play(world, happening)
        held = [
            row.offset
            for key, value in world.partition.rows.items()
            if key.startswith(keys.SESSION) and key[25:26] == keys.AUDIO and (row := rows.audio(value))
        ]
        assert world.store.references.lowest() == min(held, default=None)


def log_of(*commands: SessionCommand) -> list[Delivered]:
    return [delivered(offset, SESSION, command) for offset, command in enumerate(commands)]


LOST, KEPT = Crash(0.0, local=True), Crash(1.0, local=False)


def test_a_deletion_that_the_changelog_missed_is_written_again() -> None:
    """The local rows are gone already, but a node that rebuilds from the changelog must not see the session again."""
    world = World(log_of(opening("stream", None), Chunk("c", 0, b"a"), Deleted("c")))
    world.fold_commands(2)
    world.commit()
    world.fold_commands(1)
    world.crash(LOST)
    world.commit()
    world.crash(KEPT)
    assert session_rows(world.partition.rows) == {}


def test_rows_of_a_deleted_session_are_removed_when_only_its_head_was_deleted_in_the_changelog() -> None:
    world = World(log_of(opening("stream", None), Chunk("c", 0, b"a", b"key"), Deleted("c")))
    world.fold_commands(3)
    world.flushed = next(at for at, (key, value) in enumerate(world.partition.changelog) if value is None)
    world.committed = world.folded
    head_gone = (keys.row_key(keys.SESSION, SESSION, keys.HEAD), None)
    world.partition.changelog.insert(world.flushed, head_gone)
    world.flushed += 1
    world.crash(Crash(0.0, local=False))
    assert session_rows(world.partition.rows) == {}
    assert session_rows(replay({}, world.partition.changelog)) == {}


@pytest.mark.parametrize("sequence", [0, None])
def test_a_chunk_that_the_changelog_missed_is_written_again(sequence: int | None) -> None:
    chunk = Chunk("c", sequence, b"a", predict=sequence is None)
    world = World(log_of(opening("stream", None), chunk))
    world.fold_commands(1)
    world.commit()
    world.fold_commands(1)
    world.crash(LOST)
    world.commit()
    world.crash(KEPT)
    assert [row.length for row in world.store.audio(SESSION, 0, 1)] == [1]


def test_windows_that_the_changelog_missed_are_written_again() -> None:
    world = World(log_of(opening("stream", None), Chunk("c", 0, b"a"), Chunk("c", 1, b"b")))
    world.fold_commands(3)
    world.analyse(SESSION, 2)
    world.commit()
    world.fold_results(1)
    world.crash(LOST)
    world.commit()
    world.crash(KEPT)
    head, block = world.head(SESSION), world.store.block(SESSION, 0)
    assert block is not None
    assert head.windows == 2
    assert block.scores == score(b"a") + score(b"b")


@pytest.mark.parametrize("cut", range(10))
@pytest.mark.parametrize("folded_again", range(4))
def test_two_crashes_lose_no_chunk_that_was_accepted(cut: int, folded_again: int) -> None:
    """The first cuts the changelog, the second comes while the log is folded again and takes the local rows.

    The local head is ahead of the changelog, which gets it with the first command that is folded again: rows of later
    chunks must not come behind it, or nothing makes them again after the second crash.
    """
    chunks = [Chunk("c", number, b"%d" % number, b"key") for number in range(3)]
    for kept in range(21):
        world = World(log_of(opening("stream", None), *chunks))
        world.fold_commands(1)
        world.commit()
        for _ in chunks:
            world.fold_commands(1)
        assert len(world.partition.changelog) - world.flushed == 9
        second = Crash(kept / 20, local=False, batch=1)
        world.crash(Crash((cut + 0.5) / 9, local=True, batch=1, then=(folded_again, second)))
        assert [row.offset for row in world.store.audio(SESSION, 0, 3)] == [1, 2, 3], kept
        [world, rebuilt] = ends(world)
        assert session_rows(world.partition.rows) == session_rows(rebuilt.partition.rows)
        assert session_rows(world.partition.rows) == session_rows(clean_run(world.commands).partition.rows)


def finished_session() -> World:
    """A session that was sealed and analysed to its end, all of it committed: nothing is to be done for it."""
    world = World(log_of(opening("stream", None), Chunk("c", 0, b"a"), Chunk("c", 1, b"b"), Sealed("c"), Deleted("c")))
    world.fold_commands(4)
    while sessions := world.unfinished():
        world.analyse(sessions[0], 1)
        world.fold_results(10)
    world.meter()
    world.fold_results(10)
    world.commit()
    assert list(world.store.unsettled_ids()) == []
    return world


@pytest.mark.parametrize("standby", [False, True])
@pytest.mark.parametrize("cut", range(8))
def test_a_finished_session_that_was_deleted_leaves_nothing_wherever_the_changelog_was_cut(
    cut: int, standby: bool
) -> None:
    world = finished_session()
    world.fold_commands(1)
    deletions = len(world.partition.changelog) - world.flushed
    world.crash(Crash((cut + 0.5) / deletions if cut < deletions else 1.0, local=False, standby=standby))
    assert session_rows(world.partition.rows) == {}


def test_the_deletion_of_a_finished_session_that_the_changelog_missed_is_written_again() -> None:
    """As above, but the local rows are gone already when the deletion is folded again."""
    world = finished_session()
    world.fold_commands(1)
    world.crash(LOST)
    world.commit()
    world.crash(KEPT)
    assert session_rows(world.partition.rows) == {}


def test_a_session_that_is_finished_and_still_in_the_index_keeps_its_rows() -> None:
    """A changelog may end between its head and the entry of the index."""
    world = World(log_of(opening("stream", None), Chunk("c", 0, b"a"), Chunk("c", 1, b"b"), Sealed("c")))
    world.fold_commands(4)
    while sessions := world.unfinished():
        world.analyse(sessions[0], 1)
        world.fold_results(10)
    world.meter()
    world.fold_results(10)
    rows_of = session_rows(world.partition.rows)
    world.partition.write({world.store.open_key(SESSION): b""})
    world.commit()
    world.crash(KEPT)
    assert session_rows(world.partition.rows) == rows_of
    assert list(world.store.unsettled_ids()) == []


def test_chunks_whose_results_were_folded_first_are_accepted_and_need_no_row() -> None:
    """A node that was paused may fetch another owner's results before its commands."""
    world = World(log_of(opening("stream", None), Chunk("c", 0, b"a"), Chunk("c", 1, b"b", b"key")))
    world.fold_commands(2)
    both = Scored(0, MODEL, score(b"a") + score(b"b"), Cursor(2, 2), tags=TAGS)
    world.results.append(delivered(0, SESSION, both))
    world.fold_results(1)
    world.fold_commands(1)
    assert world.parked == []
    head = world.head(SESSION)
    assert (head.next, head.windows, head.in_progress) == (2, 2, False)
    assert world.store.audio(SESSION, 0, 2) == []
