"""Topics of the stack, and its result record: the number of the first window, then events in JSON, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

AUDIO: Final = "stack.audio"
RESULTS: Final = "stack.results"
#: Bytes of a window's number, in a record and in the key of a row.
NUMBER_BYTES: Final = 8


def encode(first: int, events: Sequence[bytes]) -> bytes:
    """Return the record of consecutive windows."""
    return first.to_bytes(NUMBER_BYTES, "big") + b"\n".join(events)


def decode(value: bytes) -> tuple[int, list[bytes]]:
    """Return the number of the first window, and the events of each."""
    return int.from_bytes(value[:NUMBER_BYTES], "big"), value[NUMBER_BYTES:].split(b"\n")
