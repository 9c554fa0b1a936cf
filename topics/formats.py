"""A fingerprint of the formats of records and rows."""

import hashlib
from typing import Any, Final

import msgspec

from topics import rows
from topics.folding import AudioRow, Folded, Receipt
from topics.jobs.records import Accepted, JobCommand, JobResult
from topics.jobs.rules import JobHead
from topics.records import Parked
from topics.service_time import Seen, Served
from topics.sessions.capture import Anchor, SourceNote
from topics.sessions.records import Opened, SessionCommand
from topics.sessions.rows import Block, Name, Newest
from topics.sessions.rules import SessionHead

#: What the log has: the records of all topics, and the rows of the tables.
STORED: Final[tuple[Any, ...]] = (
    *(SessionCommand, JobCommand, JobResult, Parked),
    *(SessionHead, Opened, Block, Newest, Name, Anchor, SourceNote),
    *(JobHead, Accepted, AudioRow, Receipt, Folded, Served, Seen),
)
#: Texts for people in a schema.
_SAID: Final = ("title", "description")


def fingerprint(*messages: Any) -> bytes:
    """Return a digest of the types of all records and rows, and of `messages`: of their fields, places and defaults.

    msgspec ignores fields that it does not know, so a node that reads newer records would lose them in silence.
    """
    types, components = msgspec.json.schema_components((*STORED, *messages), ref_template="{name}")
    return hashlib.sha256(rows.VERSION + msgspec.json.encode(_bare([types, components]), order="sorted")).digest()


def _bare(schema: Any) -> Any:
    match schema:
        case dict():
            return {name: _bare(part) for name, part in schema.items() if not (name in _SAID and isinstance(part, str))}
        case list() | tuple():
            return [_bare(part) for part in schema]
        case _:
            return schema
