"""Identifiers and sortable table keys.

All rows are in one table, so that related rows share one write batch and one changelog. A key is

    0x01 | session id (24 ASCII bytes) | kind (1 byte) | number (8 bytes, big-endian)    a row of a session
    0x02 | due time (8 bytes, milliseconds, big-endian) | session id                     the expiry index
    0x03 | job id (24 ASCII bytes) | kind (1 byte) | ... as for sessions                 a row of a job
    0x04 | due time | job id                                                             the expiry index of jobs
    0x05 | session id, 0x06 | job id                                                     unsettled sessions, jobs
    0x07 | project | 0x00 | state (1 byte) | 2^64 - 1 - time (8 bytes) | session id      a project's sessions
    0x08 | project | 0x00 | state | 2^64 - 1 - time | job id                             a project's jobs
    0x09 | session id | number (8 bytes, big-endian)                                     an alarm
    0x0a | project | 0x00 | 2^64 - 1 - time (8 bytes) | session id | number              a project's alarms
    0x0b | destination | 0x00 | due time | session id | number                           pending deliveries; without
                                                                                         a destination: by their age
    0x00 | name                                                                          rows of the table itself

so that a session is one range, its chunks and full blocks are ordered ranges, due sessions come first in the index, and
the newest entries come first in the list of a project and state.

A portion's key has the service's first two letters between kind and number.
"""

import secrets
import string
import zlib
from functools import lru_cache
from itertools import count
from typing import Final

ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_LENGTH: Final = 24
#: The latest possible time (milliseconds).
LATEST_MS: Final = 2**64 - 1
#: Visible characters of an id, enough to distinguish it.
SHOWN: Final = 8
ID_BITS: Final = 160
_ENDS: Final = [end.encode("ascii") for end in ALPHABET]

SESSION: Final = b"\x01"
SESSION_DUE: Final = b"\x02"
JOB: Final = b"\x03"
JOB_DUE: Final = b"\x04"
SESSION_OPEN: Final = b"\x05"
JOB_OPEN: Final = b"\x06"
SESSION_LIST: Final = b"\x07"
JOB_LIST: Final = b"\x08"
#: Alarms outlive a session that expires, so they are not among its rows.
ALARM: Final = b"\x09"
ALARM_LIST: Final = b"\x0a"
ALARM_DUE: Final = b"\x0b"

#: Rows of the table itself: the folded positions of its topics, its owner's epoch, the mark of a complete index of
#: unsettled ids, and when it was served.
POSITIONS: Final = b"\x00positions"
EPOCH: Final = b"\x00epoch"
INDEXED: Final = b"\x00indexed"
SERVED: Final = b"\x00served"
#: What begins the keys of records that were set aside, and the key of the record at which the partition stopped.
SET_ASIDE: Final = b"\x00aside"
STOPPED: Final = b"\x00stopped"

#: Kinds of rows. This one holds the command that opened the session or completed the job's upload.
REQUEST: Final = b"a"
HEAD: Final = b"b"
#: A reference to a chunk or part in the log.
AUDIO: Final = b"c"
#: A full block of windows, or a portion.
RESULT: Final = b"d"
RECEIPT: Final = b"e"
#: Later rules of a session's sounds. The request row has them too, but a restore may bring back an older one.
RULES: Final = b"f"
#: How far a session's analysis came, with its windows after the last full block.
NEWEST: Final = b"g"
#: Where the rules of alarms stand in a session.
WATCHED: Final = b"h"
#: The capture time of a place in a session's audio, the last place first.
ANCHOR: Final = b"j"
#: A later name and metadata of a session, for the same reason as `RULES`.
NAME: Final = b"k"
#: A note of a session's source.
NOTE: Final = b"i"


def new_id(partition: int = 0, partitions: int = 1) -> str:
    """Return a fresh id in a partition: 24 base62 characters, since most calls on a session need no key except its id.

    It has 142 random bits less the binary logarithm of `partitions`: 136 with 64 partitions.
    """
    draws = (drawn_id(secrets.randbits(ID_BITS), partition, partitions) for _ in count())
    return next(filter(None, draws))


def drawn_id(bits: int, partition: int, partitions: int) -> str | None:
    """Return the id in a partition that `ID_BITS` random bits give, None if they give none."""
    letters = []
    for _ in range(ID_LENGTH - 1):
        bits, letter = divmod(bits, len(ALPHABET))
        letters.append(ALPHABET[letter])
    stem = "".join(letters)
    crc = zlib.crc32(stem.encode("ascii"))
    ends = [end for end in _ENDS if zlib.crc32(end, crc) % partitions == partition] if partitions > 1 else _ENDS
    return stem + ends[bits % len(ends)].decode("ascii") if ends else None


def is_id(text: str) -> bool:
    """Return whether `text` has the form of an id; anything else is unknown without a look-up."""
    return len(text) == ID_LENGTH and text.isascii() and text.isalnum()


def shown(id: str) -> str:
    """Return the visible part of an id, for logs and lists: the full id is a secret that grants access."""
    return id[:SHOWN]


def row_key(space: bytes, id: str, kind: bytes, number: int | None = None) -> bytes:
    """Return the key of a row of a session (`space` SESSION) or job (JOB), with a number for some kinds."""
    prefix = space + id.encode("ascii") + kind
    return prefix if number is None else prefix + number.to_bytes(8, "big")


def is_head(key: bytes) -> bool:
    """Return whether a key is of a session's or job's head; its prefix is all except the last byte."""
    return len(key) == ID_LENGTH + 2 and key[:1] in (SESSION, JOB) and key[-1:] == HEAD


def number_of(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


def numbered(key: bytes, number: int) -> bytes:
    """Return a key with another number."""
    return key[:-8] + number.to_bytes(8, "big")


def portion_key(job: str, service: str, number: int) -> bytes:
    """Return the key of one portion of a service's result. Services differ in their first two letters."""
    return row_key(JOB, job, RESULT + service[:2].encode("ascii"), number)


def anchor_key(session: str, position_ms: int) -> bytes:
    """Return the key of the anchor at a position of a session's audio: the next one is that of the anchor before."""
    return row_key(SESSION, session, ANCHOR, LATEST_MS - position_ms)


def due_key(due_ms: int, id: str, index: bytes = SESSION_DUE) -> bytes:
    """Return the expiry index key of a session or job that may expire at `due_ms` (log time, milliseconds)."""
    return index + due_ms.to_bytes(8, "big") + id.encode("ascii")


def aside_key(topic: str, offset: int) -> bytes:
    """Return the key of a record that was set aside."""
    return SET_ASIDE + topic.encode() + b"\0" + offset.to_bytes(8, "big")


def parse_aside(key: bytes) -> tuple[str, int]:
    return key[len(SET_ASIDE) : -9].decode(), number_of(key)


def parse_due(key: bytes) -> tuple[int, str]:
    return int.from_bytes(key[1:9], "big"), key[9:].decode("ascii")


def list_prefix(space: bytes, project: str, state: int) -> bytes:
    """Return the prefix of the keys of a project's list (`space` SESSION_LIST or JOB_LIST) in one state."""
    return space + project.encode() + b"\0" + bytes([state])


def list_place(time_ms: int, id: str = "") -> bytes:
    """Return the rest of such a key, which sorts the newest first, then by id."""
    return (LATEST_MS - time_ms).to_bytes(8, "big") + id.encode("ascii")


def place_of(key: bytes) -> bytes:
    """Return the part of a list's key that orders entries across states: time, newest first, and id."""
    return key[-8 - ID_LENGTH :]


def parse_list_place(key: bytes) -> tuple[int, str]:
    place = place_of(key)
    return LATEST_MS - int.from_bytes(place[:8], "big"), place[8:].decode("ascii")


def alarm_key(session: str, number: int | None = None) -> bytes:
    """Return the key of an alarm; without a number, of the mark that all of a session's are deleted."""
    prefix = ALARM + session.encode("ascii")
    return prefix if number is None else prefix + number.to_bytes(8, "big")


def alarm_list_key(project: str, time_ms: int, session: str = "", number: int | None = None) -> bytes:
    """Return the key of an alarm in its project's list, the newest first, or what such keys begin with."""
    return ALARM_LIST + project.encode() + b"\0" + list_place(time_ms, session) + _end(number)


def alarm_due_key(destination: str, time_ms: int, session: str = "", number: int | None = None) -> bytes:
    """Return the key of a delivery by its next attempt, or what such keys begin with."""
    return ALARM_DUE + destination.encode() + b"\0" + time_ms.to_bytes(8, "big") + session.encode() + _end(number)


def _end(number: int | None) -> bytes:
    return b"" if number is None else number.to_bytes(8, "big")


def parse_alarm(key: bytes) -> tuple[str, int]:
    """Return the session and the number in the key of an alarm or of an entry of its lists."""
    return key[-8 - ID_LENGTH : -8].decode("ascii"), number_of(key)


def parse_alarm_due(key: bytes) -> tuple[str, int]:
    """Return the destination and the time in the key of a delivery."""
    rest = -16 - ID_LENGTH
    return key[1 : rest - 1].decode(), int.from_bytes(key[rest : rest + 8], "big")


@lru_cache(16 * 1024)
def partition_of(id: str, partitions: int) -> int:
    """Return the partition of a session or job (CRC-32 of its id), the same on every topic."""
    return zlib.crc32(id.encode("ascii")) % partitions
