"""The binary layout of the log: the keys of the database, and the packing of records.

| key                                         | value                                             |
| ------------------------------------------- | ------------------------------------------------- |
| `f`                                         | format version, decimal                           |
| `g`                                         | marker of the last group (see `pack_marker`)      |
| `i`                                         | identity of the log, 16 bytes                     |
| `t` topic name                              | topic id, partitions                              |
| `r` topic id, partition, offset             | timestamp, key length and flags, key, value       |
| `e` topic id, partition                     | earliest offset, last timestamp when it was set   |
| `c` topic id, partition                     | end of the compacted part, records kept in it;    |
|                                             | else offset below which records may be missing, 0 |
| `n` topic id, partition                     | lowest offset to append at after a salvage        |

Notes of deleted records (`streams.erasure`) have keys above all these. Numbers are big-endian, so that keys sort by
offset. Records have no checksum, because RocksDB verifies one for every write-ahead record, table block and blob that
it reads.
"""

from struct import Struct
from typing import Final

from xxhash import xxh64_intdigest

from streams.log import StoredRecord

FORMAT: Final = b"1"
FORMAT_KEY: Final = b"f"
MARKER_KEY: Final = b"g"
NAME_KEY: Final = b"i"
TOPIC_PREFIX: Final = b"t"
#: How much of a deleted record's key is noted until it is erased (`streams.erasure`), and so the offsets of one note.
NOTED_BYTES: Final = 15
NOTED_OFFSETS: Final = 1 << 16
MAX_OFFSET: Final = 2**64 - 1

_record_key: Final = Struct(">cIIQ")
_partition_key: Final = Struct(">cII")
_tail: Final = Struct(">II")
_head: Final = Struct(">qI")
_pair: Final = Struct(">Qq")
_u64: Final = Struct(">Q")
_marker: Final = Struct(">8sQQ")

_NO_KEY: Final = 1 << 31
_NO_VALUE: Final = 1 << 30
#: The first bytes of a group's marker.
MAGIC: Final = b"\xe5ar\x8esh\x9dt"


def prefix_end(prefix: bytes) -> bytes:
    """Return the key that follows all keys with this one-byte prefix."""
    return bytes((prefix[0] + 1,))


def record_key(topic_id: int, partition: int, offset: int) -> bytes:
    return _record_key.pack(b"r", topic_id, partition, offset)


def record_offset(key: bytes) -> int:
    offset: int = _u64.unpack_from(key, 9)[0]
    return offset


def pack_record(timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    size = _NO_KEY if key is None else len(key)
    if value is None:
        return _head.pack(timestamp, size | _NO_VALUE) + (key or b"")
    return _head.pack(timestamp, size) + (key or b"") + value


def unpack_record(offset: int, data: bytes) -> StoredRecord:
    timestamp, size = _head.unpack_from(data)
    start = 12 + (size & ~(_NO_KEY | _NO_VALUE) if not size & _NO_KEY else 0)
    key = None if size & _NO_KEY else data[12:start]
    return StoredRecord(offset, timestamp, key, None if size & _NO_VALUE else data[start:])


def earliest_key(topic_id: int, partition: int) -> bytes:
    return _partition_key.pack(b"e", topic_id, partition)


def clean_key(topic_id: int, partition: int) -> bytes:
    return _partition_key.pack(b"c", topic_id, partition)


def next_key(topic_id: int, partition: int) -> bytes:
    """Return the key of the lowest offset to append at; lost records may have had lower ones."""
    return _partition_key.pack(b"n", topic_id, partition)


#: Packs and unpacks the values of `earliest_key` and `clean_key`.
pack_pair: Final = _pair.pack
unpack_pair: Final = _pair.unpack


def topic_key(name: str) -> bytes:
    return TOPIC_PREFIX + name.encode()


#: Packs and unpacks topic id and number of partitions.
pack_topic: Final = _tail.pack
unpack_topic: Final = _tail.unpack
pack_offset: Final = _u64.pack


def unpack_offset(data: bytes) -> int:
    offset: int = _u64.unpack(data)[0]
    return offset


def pack_marker(group: int, name: bytes) -> bytes:
    """Return the marker that starts the write of a group; `last_marker` finds it in a damaged write-ahead log.

    Its digest includes the log's name, so that no client can put a marker into a record.
    """
    return _marker.pack(MAGIC, group, xxh64_intdigest(_u64.pack(group) + name))


def unpack_marker(data: bytes) -> int:
    group: int = _marker.unpack(data)[1]
    return group


def last_marker(data: bytes, name: bytes) -> int:
    """Return the highest group number of the log `name` whose marker is in the raw bytes; 0 if there is none."""
    highest, at = 0, data.find(MAGIC)
    while at >= 0:
        marker = data[at : at + _marker.size]
        if len(marker) == _marker.size:
            group = unpack_marker(marker)
            if marker == pack_marker(group, name):
                highest = max(highest, group)
        at = data.find(MAGIC, at + 1)
    return highest
