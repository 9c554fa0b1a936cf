"""Values and their meaning: windows, times, stored scores, languages, keys, and turns by project."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import keys, languages, scores
from topics.geometry import SENSE, SESSIONS, Geometry
from topics.jobs.rules import VISIBLE_STATES
from topics.sessions.rules import LISTED_STATES
from topics.times import clock, iso_time
from topics.turns import Sharing, Turns

SENSITIVITIES = range(-2, 3)


@pytest.mark.parametrize(
    ("geometry", "bounds", "patches"),
    [
        (SESSIONS, [(0, 1), (0.5, 1.5), (1, 2)], (1, 2)),
        (SENSE, [(0, 2), (1, 3), (2, 4)], (2, 1)),
        (Geometry(3000, 500), [(0, 3), (0.5, 3.5), (1, 4)], (3, 2)),
    ],
    ids=["sessions", "sense", "others"],
)
def test_window_bounds_and_patches_follow_geometry(
    geometry: Geometry, bounds: list[tuple[float, float]], patches: tuple[int, int]
) -> None:
    found = [geometry.bounds(window) for window in range(3)]
    assert repr(found) == repr(bounds), "whole seconds are integers"
    assert (geometry.patches, geometry.stride) == patches


@pytest.mark.parametrize(
    ("ms", "hours", "shown"),
    [
        (0, False, "00:00.00"),
        (4609, False, "00:04.60"),
        (3_599_999, False, "59:59.99"),
        (3_600_000, False, "01:00:00.00"),
        (4600, True, "00:00:04.60"),
        (360_000_000, True, "100:00:00.00"),
    ],
)
def test_clock_formats_milliseconds(ms: int, hours: bool, shown: str) -> None:
    assert clock(ms, hours) == shown


def test_iso_time_formats_utc() -> None:
    assert iso_time(1_767_323_045_678) == "2026-01-02T03:04:05.678Z"
    assert iso_time(1_767_323_045_000) == "2026-01-02T03:04:05.000Z"


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_tag_is_reported_from_probability_one_half(sensitivity: int) -> None:
    shown = [scores.probability(stored, sensitivity) for stored in range(256)]
    assert shown == sorted(shown)
    assert 0 <= shown[0] <= shown[-1] <= 1
    assert [one >= 0.5 for one in shown] == [stored >= scores.threshold(sensitivity) for stored in range(256)]


def test_probability_is_taken_at_step_midpoint() -> None:
    assert scores.probability(128) == round(1 / (1 + math.exp(-0.035)), 4) == 0.5087
    assert scores.probability(127) == 0.4913
    assert scores.probability(138, 1) == scores.probability(128)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *[("en", "en"), ("pt-BR", "pt"), ("Korean", "ko"), ("haitian creole", "ht"), ("iw-IL", "he"), (" FR ", "fr")],
        *[("xx", None), ("", None), ("klingon", None), ("e" * 10_000, None)],
    ],
)
def test_language_text_maps_to_code(text: str, code: str | None) -> None:
    assert languages.code(text) == code


def test_language_codes_and_names_map_both_ways() -> None:
    assert len(languages.NAMES) == 100
    for code, name in languages.NAMES.items():
        assert (languages.code(code), languages.code(name)) == (code, code)
        assert languages.name(code) == languages.name(name.lower()) == name
    assert languages.name("klingon") == "Klingon"


sessions = st.text(keys.ALPHABET, min_size=keys.ID_LENGTH, max_size=keys.ID_LENGTH)
numbers = st.integers(0, 2**64 - 1)
kinds = st.sampled_from([keys.REQUEST, keys.HEAD, keys.AUDIO, keys.RESULT, keys.RECEIPT])


def test_new_ids_are_valid_and_unique() -> None:
    made = {keys.new_id() for _ in range(200)}
    assert len(made) == 200
    assert all(keys.is_id(session) for session in made)
    assert len(keys.ALPHABET) ** keys.ID_LENGTH > 2**128


def test_malformed_ids_are_rejected() -> None:
    session = keys.new_id()
    for wrong in ("", session[:-1], session + "0", session[:-1] + "/", session[:-1] + "é", session[:-1] + "٣"):
        assert not keys.is_id(wrong)


@given(sessions, kinds, numbers, numbers)
def test_row_keys_sort_by_number(session: str, kind: bytes, one: int, other: int) -> None:
    first, second = (keys.row_key(keys.SESSION, session, kind, number) for number in (one, other))
    assert (first < second) == (one < other)
    assert keys.number_of(first) == one


@given(sessions, sessions, kinds, numbers)
def test_session_keys_form_contiguous_range(mine: str, other: str, kind: bytes, number: int) -> None:
    prefix = keys.row_key(keys.SESSION, mine, b"")
    key = keys.row_key(keys.SESSION, other, kind, number)
    assert keys.row_key(keys.SESSION, mine, kind, number).startswith(prefix)
    assert key.startswith(prefix) == (mine == other)
    # Keys of another session all sort before or after this one's.
    low, high = (
        keys.row_key(keys.SESSION, mine, keys.REQUEST),
        keys.row_key(keys.SESSION, mine, keys.RECEIPT, 2**64 - 1),
    )
    assert mine == other or not low <= key <= high


@given(st.lists(st.tuples(st.integers(0, 2**63), sessions), max_size=20))
def test_due_keys_sort_by_time_and_parse_back(entries: list[tuple[int, str]]) -> None:
    made = sorted(keys.due_key(due, session) for due, session in entries)
    assert [keys.parse_due(key)[0] for key in made] == sorted(due for due, _ in entries)
    assert sorted(keys.parse_due(key) for key in made) == sorted(entries)


def test_partition_of_known_id_never_changes() -> None:
    """Another hash would move a session in progress to another partition after an upgrade."""
    assert [keys.partition_of("0" * 24, n) for n in (4, 16, 64)] == [3, 11, 43]
    assert keys.partition_of("3TqZ0aLxPmV7cW9yB2nRkD4s", 64) == 15


def test_list_key_format_never_changes() -> None:
    """They outlive the code: inserting a state in front would move every entry."""
    key = keys.list_prefix(keys.JOB_LIST, "p", 2) + keys.list_place(0x1234, "A" * 24)
    assert key == b"\x08p\x00\x02" + b"\xff" * 6 + b"\xed\xcb" + b"A" * 24
    assert keys.parse_list_place(key) == (0x1234, "A" * 24)
    assert keys.list_place(2) < keys.list_place(1) < keys.list_place(1, "A") < keys.list_place(1, "B")
    assert [*LISTED_STATES] == ["writable", "readonly"]
    assert [*VISIBLE_STATES] == ["accepted", "processing", "completed"]


PROJECTS = st.sampled_from("abcd")
#: A project to put an item of, or None to take one.
STEPS = st.lists(st.one_of(PROJECTS, st.none()), max_size=80)


@given(STEPS)
def test_projects_take_turns_in_fifo_order(steps: list[str | None]) -> None:
    turns: Turns[tuple[str, int]] = Turns()
    waiting: dict[str, list[int]] = {}
    #: Turns of others since a project's first item began to wait.
    passed: dict[str, list[str]] = {}
    for number, project in enumerate(steps):
        if project is not None:
            turns.put(project, (project, number))
            waiting.setdefault(project, []).append(number)
            passed.setdefault(project, [])
            continue
        item = turns.take()
        if item is None:
            assert not waiting
            assert not turns
            continue
        owner, taken = item
        assert taken == waiting[owner].pop(0), "of a project, first come first served"
        for other, seen in passed.items():
            if other != owner:
                assert owner not in seen, "a second turn before another project's first"
                seen.append(owner)
        passed[owner] = []
        if not waiting[owner]:
            del waiting[owner], passed[owner]
    assert bool(turns) is bool(waiting)


@given(st.lists(st.tuples(PROJECTS, st.integers(0, 5))))
def test_project_items_are_ordered_by_rank_then_age(items: list[tuple[str, int]]) -> None:
    turns: Turns[tuple[str, int, int]] = Turns()
    for age, (project, rank) in enumerate(items):
        turns.put(project, (project, rank, age), rank)
    taken = [item for _ in items if (item := turns.take()) is not None]
    assert sorted(taken) == sorted((project, rank, age) for age, (project, rank) in enumerate(items))
    for project in "abcd":
        own = [item for item in taken if item[0] == project]
        assert own == sorted(own)


def test_skipped_project_keeps_its_turn() -> None:
    turns: Turns[int] = Turns()
    for number, project in enumerate("aabb"):
        turns.put(project, number)
    assert turns.take(passed_over={"a"}) == 2
    assert turns.take(passed_over={"a", "b"}) is None
    assert [turns.take() for _ in range(4)] == [0, 3, 1, None]


@given(st.lists(st.tuples(PROJECTS, st.integers(0, 3))), PROJECTS, st.integers(0, 3))
def test_discarded_item_is_removed(items: list[tuple[str, int]], project: str, item: int) -> None:
    turns: Turns[tuple[str, int]] = Turns()
    for one in items:
        turns.put(one[0], one)
    turns.discard(project, (project, item))
    rest = list(items)
    if (project, item) in rest:
        rest.remove((project, item))
    assert sorted(taken for _ in items if (taken := turns.take()) is not None) == sorted(rest)
    assert not turns


def test_sharing_ends_some_time_after_the_last_change_of_project() -> None:
    sharing, seen = Sharing(2.0), []
    for now, project in enumerate("aabaaaa"):
        sharing.note(project, float(now))
        seen.append(sharing.is_shared(float(now)))
    assert seen == [False, False, True, True, True, False, False]
