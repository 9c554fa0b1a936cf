"""The rows of jobs under the keys of `topics.keys`, and how they are read."""

from __future__ import annotations

from typing import Final

import msgspec

from topics.jobs.records import Accepted
from topics.jobs.rules import JobHead

_head: Final = msgspec.msgpack.Decoder(JobHead)
_accepted: Final = msgspec.msgpack.Decoder(Accepted)


def head(value: bytes | None) -> JobHead | None:
    """Read a head row, None where there is none."""
    return None if value is None else _head.decode(value)


def accepted(value: bytes | None) -> Accepted | None:
    """Read an acceptance row, None where there is none."""
    return None if value is None else _accepted.decode(value)
