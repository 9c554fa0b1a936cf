"""The binary form: what is packed is read back, keys sort as offsets do, markers are found in raw bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.embedded import layout
from streams.log import StoredRecord

maybe_bytes = st.none() | st.binary(max_size=40)
offsets = st.integers(0, layout.MAX_OFFSET)


@given(st.integers(0, 2**62), maybe_bytes, maybe_bytes)
def test_a_record_is_read_back(timestamp: int, key: bytes | None, value: bytes | None) -> None:
    data = layout.pack_record(timestamp, key, value)
    assert layout.unpack_record(7, data) == StoredRecord(7, timestamp, key, value)


@given(offsets, offsets)
def test_keys_sort_as_offsets(one: int, two: int) -> None:
    keys = [layout.record_key(1, 2, offset) for offset in (one, two)]
    assert (keys[0] < keys[1]) == (one < two)
    assert layout.record_offset(keys[0]) == one


def test_partitions_do_not_overlap() -> None:
    assert layout.record_key(1, 2, layout.MAX_OFFSET) < layout.record_key(1, 3, 0)
    assert layout.record_key(1, 2**32 - 1, layout.MAX_OFFSET) < layout.record_key(2, 0, 0)


@given(st.text(max_size=20), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_commit_keys_are_read_back(group: str, topic_id: int, partition: int) -> None:
    assert layout.split_commit_key(layout.commit_key(group, topic_id, partition)) == (group, topic_id, partition)


@pytest.mark.parametrize(
    ("data", "group"),
    [
        (b"", 0),
        (b"x" * 50, 0),
        (b"x" + layout.pack_marker(4) + b"y" + layout.pack_marker(3), 4),
        (layout.pack_marker(4)[:-1], 0),
        (layout.pack_marker(9)[:-1] + b"\0" + layout.pack_marker(2), 2),
    ],
)
def test_markers_are_found_and_damaged_ones_are_not(data: bytes, group: int) -> None:
    assert layout.last_marker(data) == group
