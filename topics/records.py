"""The base of all log records, and the record that wraps a parked one.

Records are frozen structs, one union per topic. No version was released, so a version reads its own records only. From
the first release on, a new field goes last and has a default; a field never changes its meaning or place; anything else
is a new version in `topics.record_codec`. Golden examples are in `tests/examples/`.
"""

import msgspec


class Record(msgspec.Struct, frozen=True, array_like=True, tag_field="t"):
    """Base of all records: positional msgpack arrays that start with a short tag."""


class Parked(Record, frozen=True, tag="parked"):
    """An unprocessable record, unchanged, with the cause; on the dead-letter topics `*.dlq.v1`."""

    topic: str
    partition: int
    offset: int
    cause: str
    key: bytes
    value: bytes
