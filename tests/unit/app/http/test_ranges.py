"""A single byte range, and everything that is not one."""

import pytest

from app.http.ranges import RangeNotSatisfiable, byte_range


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"bytes=0-0", (0, 1)),
        (b"bytes=0-", (0, 100)),
        (b"bytes=10-19", (10, 20)),
        (b"bytes=99-99", (99, 100)),
        (b"bytes=90-4000", (90, 100)),
        (b"bytes=-1", (99, 100)),
        (b"bytes=-4000", (0, 100)),
        (b"bytes=0-9999999999999999999", (0, 100)),
    ],
)
def test_valid_ranges(header: bytes, found: tuple[int, int]) -> None:
    assert byte_range(header, 100) == found


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"bytes=",
        b"bytes=-",
        b"bytes=5-4",
        b"bytes=0-1,3-4",
        b"bytes=" + b",".join(b"0-" for _ in range(1000)),
        b"bytes=0x10-",
        b"bytes=+1-2",
        b"bytes=" + b"9" * 5000 + b"-",
        b"items=0-1",
        b"bytes=0-1\n",
        "bytes=٣-٤".encode(),
    ],
)
def test_invalid_ranges_select_whole_body(header: bytes) -> None:
    assert byte_range(header, 100) is None


@pytest.mark.parametrize("header", [b"bytes=100-", b"bytes=100-200", b"bytes=-0", b"bytes=9999999999999999999-"])
def test_range_after_end_is_not_satisfiable(header: bytes) -> None:
    with pytest.raises(RangeNotSatisfiable) as error:
        byte_range(header, 100)
    assert error.value.size == 100
