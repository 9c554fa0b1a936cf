"""Turns by project: an item waits for at most one turn of each other project; none is lost or overtaken."""

from hypothesis import given
from hypothesis import strategies as st

from topics.turns import Sharing, Turns

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
