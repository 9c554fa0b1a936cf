"""Extents of lists: what is there is found whatever was seen before, and what is gone is not looked for."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from streams.folding.extents import ALL, ListExtents
from topics import keys

PREFIX = keys.list_prefix(keys.JOB_LIST, "p", 1)
TIMES = st.integers(1, 9)
STEPS = st.lists(
    st.tuples(st.just("put"), TIMES, TIMES)
    | st.tuples(st.just("delete"), TIMES, TIMES)
    | st.tuples(st.just("read"), TIMES, TIMES)
    | st.tuples(st.just("read a part"), TIMES, TIMES)
    | st.tuples(st.just("read all"), TIMES, TIMES),
    max_size=40,
)


class Rows:
    """Keys in order, and the ranges that were scanned."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.scanned: list[tuple[bytes, bytes]] = []

    def scan(self, lower: bytes, upper: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.scanned.append((lower, upper))
        yield from ((key, b"") for key in sorted(self.keys) if lower <= key < upper)


def key_at(time: int) -> bytes:
    return PREFIX + keys.list_place(time, "A" * keys.ID_LENGTH)


@given(STEPS)
def test_a_list_is_what_is_written(steps: list[tuple[str, int, int]]) -> None:
    rows, extents = Rows(), ListExtents()
    for what, one, other in steps:
        if what == "put":
            rows.keys.add(key_at(one))
            extents.note(key_at(one))
        elif what == "delete":
            rows.keys.discard(key_at(one))
        else:
            lower, upper = ALL if what == "read all" else (keys.list_place(one), keys.list_place(min(one, other) - 1))
            expected = sorted(key for key in rows.keys if PREFIX + lower <= key < PREFIX + upper)
            entries = extents.entries(rows.scan, PREFIX, lower, upper)
            if what == "read a part":
                assert next(entries, None) == (expected[0] if expected else None)
            else:
                assert list(entries) == expected


def test_what_is_gone_is_not_looked_for() -> None:
    rows, extents = Rows(), ListExtents()
    for _ in range(2):
        assert list(extents.entries(rows.scan, PREFIX, *ALL)) == []
    assert len(rows.scanned) == 1
    rows.keys.add(key_at(5))
    extents.note(key_at(5))
    assert list(extents.entries(rows.scan, PREFIX, *ALL)) == [key_at(5)]
    assert rows.scanned[-1] == (key_at(5), key_at(5) + b"\0")
