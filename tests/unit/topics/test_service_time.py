"""Service time: absences are added to deadlines, and a clock that was wrong leaves nothing behind."""

from hypothesis import given
from hypothesis import strategies as st

from topics.service_time import MINUTE_MS, MOST_ABSENCES, Served

DAY_MS = 24 * 60 * MINUTE_MS
GAP_MS = 5000


def served(*moments: int) -> Served:
    """Return the state after a partition was served at these times."""
    state = Served(moments[0])
    for now in moments[1:]:
        state = state.after(now, GAP_MS)
    return state


def spent(state: Served, since: int) -> int:
    """Return the service time (ms) since then."""
    return state.until - since - state.absent_since(since)


def test_only_gaps_are_absences() -> None:
    state = served(0, 5000, 10_000, 60_000, 61_000, 70_000)
    assert state == Served(70_000, ((10_000, 60_000), (61_000, 70_000)))
    assert [state.absent_since(at) for at in (0, 30_000, 60_000, 65_000, 70_000)] == [59_000, 39_000, 9000, 5000, 0]
    assert Served(100).after(200, 0) == Served(200, ((100, 200),))


@given(times=st.lists(st.tuples(st.integers(0, GAP_MS), st.integers(GAP_MS + 1, DAY_MS)), max_size=3 * MOST_ABSENCES))
def test_service_time_of_restarts_adds_up(times: list[tuple[int, int]]) -> None:
    """However many absences there are: what is older than all of them, or younger, counts exactly."""
    state, ran = Served(0), 0
    for up, down in times:
        state = state.after(state.until + up, GAP_MS)
        state, ran = state.after(state.until + down, GAP_MS), ran + up
    assert spent(state, 0) == ran
    assert spent(state, state.until) == 0
    assert len(state.absences) <= MOST_ABSENCES
    ends = [moment for absence in state.absences for moment in absence]
    assert ends == sorted(ends)


def test_new_absences_are_exact_among_many() -> None:
    moments = [0]
    for _ in range(20 * MOST_ABSENCES):
        moments += [moments[-1] + 1000, moments[-1] + 61_000]
    state = served(*moments)
    since = moments[-2 * 20]
    assert abs(spent(state, since) - 20 * 1000) <= 1000


def test_clock_that_is_ahead_for_one_run_adds_nothing() -> None:
    """The second of three runs has the clock a day ahead; each run, and each time between, is a minute."""
    minute = MINUTE_MS
    state = Served(0).after(minute, minute)
    state = state.after(2 * minute + DAY_MS, 0).after(3 * minute + DAY_MS, minute)
    assert spent(state, 0) == 2 * minute
    state = state.after(4 * minute, 0).after(5 * minute, minute)
    assert spent(state, 0) == 3 * minute
    assert spent(state, 4 * minute) == minute


def test_clock_that_jumps_ahead_and_back_adds_nothing() -> None:
    state = Served(0)
    for now in range(0, 60_000, 1000):
        state = state.after(now, GAP_MS)
    for now in range(60_000, 120_000, 1000):
        state = state.after(now + DAY_MS, GAP_MS)
    assert spent(state, 0) == 118_000
    for now in range(120_000, 180_000, 1000):
        state = state.after(now, GAP_MS)
    assert abs(spent(state, 0) - 179_000) <= 2000
    assert spent(state, 120_000) == 59_000


def test_clock_that_is_behind_and_right_again_ends_nothing_early() -> None:
    state = served(DAY_MS, DAY_MS + 1000)
    state = state.after(0, GAP_MS)
    assert state == Served(0)
    state = state.after(1000, GAP_MS).after(DAY_MS + 3000, GAP_MS)
    assert spent(state, 1000) == 0
    assert 0 <= spent(state, DAY_MS) <= 1000


def test_small_step_back_stands_still() -> None:
    state = served(100_000, 50_000)
    assert state == Served(100_000)
    assert state.after(101_000, GAP_MS) == Served(101_000)
