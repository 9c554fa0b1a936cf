"""Range requests (RFC 9110, 14) for one range of bytes; several ranges get the whole, as the RFC allows."""

import re
from typing import Final

from topics.errors import RequestError

_RANGE: Final = re.compile(rb"bytes=(\d{0,19})-(\d{0,19})")


class RangeNotSatisfiable(RequestError):
    """The range begins after the end of the content, which has `size` bytes."""

    status = 416

    def __init__(self, size: int) -> None:
        super().__init__(f"Range: there are {size} bytes")
        self.headers = ((b"content-range", b"bytes */%d" % size),)


def byte_range(header: bytes, size: int) -> tuple[int, int] | None:
    """Return [start, end) of a Range header over `size` bytes, or None to send everything.

    Raises:
        RangeNotSatisfiable: it begins after the end.
    """
    found = _RANGE.fullmatch(header)
    if found is None or not (found[1] or found[2]):
        return None
    last = min(int(found[2] or size), size - 1) if found[1] else size - 1
    first = int(found[1]) if found[1] else max(0, size - int(found[2]))
    if first >= size:
        raise RangeNotSatisfiable(size)
    return (first, last + 1) if first <= last else None
