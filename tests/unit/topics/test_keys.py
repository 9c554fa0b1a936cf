"""Session ids and sortable keys."""

from hypothesis import given
from hypothesis import strategies as st

from topics import keys
from topics.jobs.rules import VISIBLE_STATES
from topics.sessions.rules import LISTED_STATES

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
