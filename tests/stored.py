"""Compares records with their bytes: the node that appends one folds the record, and any other its bytes."""

from collections.abc import Callable

from topics import record_codec
from topics.records import Record


def assert_stored(record: Record, decode: Callable[[bytes | None], Record]) -> None:
    """Assert that the bytes of a record say the same, also by the types of all fields."""
    assert repr(decode(record_codec.encode(record))) == repr(record)
