"""Redelivery after a crash at any point gives the rows of an undisturbed run: none lost, repeated or out of order."""

import copy
from collections.abc import Callable
from functools import partial
from unittest import mock

import msgspec
import pytest
from hypothesis import event, example, given, note, settings
from hypothesis import strategies as st

from streams.log import StoredRecord
from streams.sessions.metering import charges
from tests.unit.streams.sessions.histories import histories, opening
from tests.unit.streams.sessions.rows import delivered, replay
from tests.unit.streams.sessions.world import IDLE_MS, STEP, Crash, World
from topics import keys, rows
from topics.sessions import rows as sessions
from topics.sessions import rules
from topics.sessions.records import Chunk, Deleted, Metered, Sealed, SessionCommand, SessionKind
from topics.sessions.rows import BLOCK_WINDOWS
from topics.sessions.sounds import SoundRules

pytestmark = pytest.mark.slow

SESSION = "S" * 24
Happening = tuple[str, int | Crash]

counts = st.integers(1, 4)
kept = st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0])
batch_sizes = st.sampled_from([1, 1, 2, 1000])


def crashes(following: st.SearchStrategy[tuple[int, Crash] | None]) -> st.SearchStrategy[Crash]:
    return st.builds(Crash, kept, st.booleans(), st.booleans(), batch_sizes, following)


two_crashes = st.tuples(st.just("crash"), crashes(st.none() | st.tuples(st.integers(0, 6), crashes(st.none()))))
#: Frequent events are listed more than once.
names = ["commands", "commands", "work", "work", "analyse", "show", "meter", "tune", "commit", "commit"]
steps = st.tuples(st.sampled_from(names), counts)
happenings: st.SearchStrategy[Happening] = st.one_of(steps, steps, steps, steps, two_crashes)
stories = st.lists(happenings, min_size=2, max_size=14)


def play(world: World, happening: Happening) -> None:
    what, argument = happening
    if isinstance(argument, Crash):
        world.crash(argument)
        return
    steps: dict[str, Callable[[], None]] = {
        "commands": partial(world.fold_commands, argument),
        "show": world.show,
        "analyse": partial(analyse, world, argument),
        "work": partial(analyse, world, argument),
        "commit": world.commit,
        "meter": world.meter,
        "tune": partial(world.tune, argument),
    }
    steps[what]()
    if what == "work":
        world.show()


def analyse(world: World, count: int) -> None:
    for session in world.unfinished():
        world.analyse(session, count)


def clean_run(commands: list[StoredRecord]) -> World:
    world = World(commands)
    world.finish()
    return world


def session_rows(stored: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the rows without what notes of the service changed, which differ in a run without crashes."""
    found = {key: row for key, row in stored.items() if key.startswith(keys.SESSION) and key[25:] != keys.RULES}
    for key, value in found.items():
        if key[25:] == keys.REQUEST:
            opened = sessions.opened(value)
            assert opened is not None
            found[key] = rows.encode(msgspec.structs.replace(opened, tuned=()))
        elif key[25:] == keys.HEAD:
            # With the row of the newest windows, which tells what a head no longer needs.
            head = sessions.whole(sessions.head(value), sessions.newest(stored.get(key[:25] + keys.NEWEST)))
            assert head is not None
            found[key] = rows.encode(msgspec.structs.replace(head, noted=-1, tuned=0))
    return found


def assert_rules_stay(world: World, told: dict[str, tuple[SoundRules, ...]]) -> None:
    """Check that rules seen by readers apply to the same windows forever, whatever is lost and folded again."""
    for session in world.store.all_ids():
        opened = world.store.opened(session)
        if opened is not None:
            known = told.get(session, ())
            assert opened.rules[: len(known)] == known
            if world.flushed == len(world.partition.changelog):
                told[session] = opened.rules


def assert_watched(world: World) -> None:
    """Check that every session has an entry in the expiry index that is due no later than its end.

    Redelivery may leave a surplus entry; the sweeper removes it when it is due.
    """
    due = [keys.parse_due(key) for key in world.partition.rows if key.startswith(keys.SESSION_DUE)]
    for session in world.store.all_ids():
        head = world.head(session)
        assert any(entry <= head.touched + IDLE_MS for entry, of in due if of == session)


def ends(world: World) -> list[World]:
    """Finish, check, and check again after rebuilding everything from the changelog; nothing was parked."""
    world.finish()
    assert_watched(world)
    rebuilt = copy.copy(world)
    rebuilt.commit()
    rebuilt.crash(Crash(1.0, local=False))
    assert_watched(rebuilt)
    assert world.parked == []
    return [world, rebuilt]


def log_of(*commands: SessionCommand) -> list[StoredRecord]:
    return [delivered(offset, SESSION, command) for offset, command in enumerate(commands)]


OPENED, A, B = opening("stream", None), Chunk("c", 0, b"a"), Chunk("c", 1, b"b")
#: Local rows with a changelog that lacks the newest ones; then a node that starts from the changelog alone.
LOST, KEPT = Crash(0.0, local=True), Crash(1.0, local=False)
MISSED: list[Happening] = [("crash", LOST), ("commit", 1), ("crash", KEPT)]
#: A session that is fully analysed and billed, all of it committed.
FINISHED: list[Happening] = [("commands", 4), ("work", 2), ("work", 1), ("meter", 1), ("commands", 1), ("commit", 1)]


#: Other rules after the first of two windows.
TUNED: list[Happening] = [("commands", 2), ("work", 1), ("tune", 2), ("commands", 2), ("work", 1)]


@settings(max_examples=200, deadline=None)
@given(commands=histories(), story=stories)
# A deletion, a chunk, one of predict, a seal, windows, and the deletion of finished rows are written again.
@example(log_of(OPENED, A, Deleted("c")), [("commands", 2), ("commit", 1), ("commands", 1), *MISSED])
@example(log_of(OPENED, A), [("commands", 1), ("commit", 1), ("commands", 1), *MISSED])
@example(
    log_of(OPENED, Chunk("c", None, b"a", predict=True)), [("commands", 1), ("commit", 1), ("commands", 1), *MISSED]
)
@example(log_of(OPENED, A, Sealed("c")), [("commands", 1), ("commit", 1), ("commands", 2), *MISSED])
@example(log_of(OPENED, A, B), [("commands", 3), ("commit", 1), ("analyse", 2), ("show", 1), *MISSED])
@example(log_of(OPENED, A, B, Sealed("c"), Deleted("c")), [*FINISHED, ("commands", 1), *MISSED])
# Other rules between two windows, whose opening is written again.
@example(log_of(OPENED, A, B), [*TUNED, *MISSED])
@example(log_of(OPENED, A, B), [("commands", 2), ("tune", 1), ("work", 1), ("crash", Crash(0.3, local=True, batch=1))])
def test_crashes_do_not_change_final_rows(commands: list[StoredRecord], story: list[Happening]) -> None:
    check_story(commands, story)


@settings(max_examples=100, deadline=None)
@given(commands=histories(), story=stories, most=st.integers(1, 3))
# The row of the first chunk comes with the second chunk, and is written again with it.
@example(log_of(OPENED, A, B), [("commands", 2), ("commit", 1), ("commands", 1), *MISSED], 1)
def test_crashes_do_not_change_final_rows_if_heads_hold_few_references(
    commands: list[StoredRecord], story: list[Happening], most: int
) -> None:
    with mock.patch.object(rules, "MOST_RECENT", most):
        check_story(commands, story)


def check_story(commands: list[StoredRecord], story: list[Happening]) -> None:
    world = World(commands)
    told: dict[str, tuple[SoundRules, ...]] = {}
    for happening in story:
        play(world, happening)
        note(f"{happening}: {world.folded[0]} of {len(world.log)} folded")
        assert_held(world)
        assert_rules_stay(world, told)
    event(f"crashes: {sum(what == 'crash' for what, _ in story)}")
    clean = clean_run(commands)
    for ended in ends(world):
        assert session_rows(ended.partition.rows) == session_rows(clean.partition.rows)
        assert_rules_stay(ended, told)
    assert_metered(world, clean)


def assert_held(world: World) -> None:
    """Check that the held offsets are exactly those of the rows and heads, so that the log is trimmed correctly."""
    held = [
        row.offset
        for key, value in world.partition.rows.items()
        if key.startswith(keys.SESSION) and key[25:26] == keys.AUDIO and (row := rows.audio(value))
    ]
    held += [row.offset for session in world.store.all_ids() for row in world.head(session).recent]
    assert world.store.references.lowest() == min(held, default=None)


def assert_metered(world: World, clean: World) -> None:
    """Check that the ledger equals that of a run without crashes; deleted sessions may lack later steps."""
    kept = {session for session in clean.store.all_ids() if clean.store.opened(session) is not None}
    for ledger in (world.ledger, clean.ledger):
        for session in kept:
            head, opened = clean.head(session), clean.store.opened(session)
            assert opened is not None
            due = charges(session, opened, Metered("", head.meterable, bool(head.predicts)))
            assert [charge for (of, _), charge in sorted(ledger.items()) if of == session] == list(due)


@settings(max_examples=75, deadline=None)
@given(commands=histories(damaged=True), story=stories)
def test_crashes_around_damaged_audio_keep_results(commands: list[StoredRecord], story: list[Happening]) -> None:
    world, clean = World(commands), clean_run(commands)
    for happening in story:
        play(world, happening)
    for ended in ends(world):
        assert readable(ended) == readable(clean)


def readable(world: World) -> dict[str, object]:
    """Return a client's view of every session: its windows, and whether and why it ended."""
    found: dict[str, object] = {}
    for session in world.store.all_ids():
        head = world.head(session)
        blocks = world.store.blocks(session, 0, head.windows // BLOCK_WINDOWS + 1)
        scores = b"".join(block.scores for block in blocks)
        found[session] = (head.state, head.error, head.windows, head.finished, scores, head.in_progress)
    return found


def test_leftover_rows_are_removed_if_only_head_was_deleted() -> None:
    world = World(log_of(OPENED, Chunk("c", 0, b"a", b"key"), Deleted("c")))
    world.fold_commands(3)
    world.flushed = next(at for at, (key, value) in enumerate(world.partition.changelog) if value is None)
    world.committed = world.folded
    head_gone = (keys.row_key(keys.SESSION, SESSION, keys.HEAD), None)
    world.partition.changelog.insert(world.flushed, head_gone)
    world.flushed += 1
    world.crash(Crash(0.0, local=False))
    assert session_rows(world.partition.rows) == {}
    assert session_rows(replay({}, world.partition.changelog)) == {}


@pytest.mark.parametrize(("kind", "rows_of_chunk"), [("file", 3), ("stream", 2)])
@pytest.mark.parametrize("cut", range(10))
@pytest.mark.parametrize("folded_again", range(4))
def test_two_crashes_lose_no_accepted_chunk(cut: int, folded_again: int, kind: SessionKind, rows_of_chunk: int) -> None:
    """The first cuts the changelog; the second comes while the log is folded again, and deletes the local rows.

    The local head is ahead of the changelog, which gets it with the first command that is folded again. Rows of later
    chunks must not follow it, or nothing would recreate them after the second crash.
    """
    chunks = [Chunk("c", number, b"%d" % number, b"key") for number in range(3)]
    commands = log_of(opening(kind, None), *chunks)
    expected = session_rows(clean_run(commands).partition.rows)
    logged = rows_of_chunk * len(chunks)
    for kept in range(21):
        world = World(commands)
        world.fold_commands(1)
        world.commit()
        for _ in chunks:
            world.fold_commands(1)
        assert len(world.partition.changelog) - world.flushed == logged
        second = Crash(kept / 20, local=False, batch=1)
        world.crash(Crash((cut + 0.5) / logged, local=True, batch=1, then=(folded_again, second)))
        assert [row.offset for row in world.store.audio(SESSION, 0, 3)] == [1 * STEP, 2 * STEP, 3 * STEP], kept
        for ended in ends(world):
            assert session_rows(ended.partition.rows) == expected


def finished_session(derived: bool = False) -> World:
    """Return a session that is sealed and fully analysed, all of it committed, with no pending work."""
    world = World(log_of(opening("stream", None, derived), A, B, Sealed("c")))
    world.finish()
    world.commit()
    assert list(world.store.unsettled_ids()) == []
    return world


@pytest.mark.parametrize("standby", [False, True])
@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("cut", range(8))
def test_deletion_of_finished_session_survives_any_changelog_cut(cut: int, derived: bool, standby: bool) -> None:
    world = finished_session(derived)
    world.coming.append(delivered(4 * STEP, SESSION, Deleted("c")))
    world.fold_commands(1)
    deletions = len(world.partition.changelog) - world.flushed
    world.crash(Crash((cut + 0.5) / deletions if cut < deletions else 1.0, local=False, standby=standby))
    # Only the tombstone of a derived id stays.
    assert list(session_rows(world.partition.rows)) == [world.store.row_key(SESSION, keys.HEAD)] * derived


def test_finished_session_still_in_index_keeps_rows() -> None:
    """A changelog may end between its head and the entry of the index."""
    world = finished_session()
    rows_of = session_rows(world.partition.rows)
    world.partition.write({world.store.open_key(SESSION): b""})
    world.commit()
    world.crash(KEPT)
    assert session_rows(world.partition.rows) == rows_of
    assert list(world.store.unsettled_ids()) == []


def test_chunks_folded_after_their_windows_need_no_row() -> None:
    """The windows of another owner may be known before its commands."""
    world, other = (World(log_of(OPENED, A, Chunk("c", 1, b"b", b"key"))) for _ in range(2))
    other.fold_commands(3)
    other.analyse(SESSION, 2)
    other.show()
    world.fold_commands(2)
    newest = world.store.row_key(SESSION, keys.NEWEST)
    world.partition.write({newest: other.partition.rows[newest]})
    world.store.remember(SESSION, None)
    world.fold_commands(1)
    assert world.parked == []
    head = world.head(SESSION)
    assert (head.next, head.windows, head.in_progress) == (2, 2, False)
    assert world.store.audio(SESSION, 0, 2) == []
