"""The binary form of the log: which keys the database holds, and how a record is packed.

| key                                         | value                                             |
| ------------------------------------------- | ------------------------------------------------- |
| `f`                                         | format version, decimal                           |
| `g`                                         | marker of the last group (see `pack_marker`)      |
| `i`                                         | 16 bytes that tell this log from all others       |
| `t` topic name                              | topic id, partitions                              |
| `r` topic id, partition, offset             | timestamp, key length and flags, key, value       |
| `e` topic id, partition                     | earliest offset, last timestamp when it was set   |
| `c` topic id, partition                     | end of the compacted part, records kept in it     |
| `n` topic id, partition                     | lowest offset of what is appended after a salvage |

Numbers are big-endian, so that keys sort by offset. Records carry no checksum of their own: RocksDB checks one on
every write-ahead record, table block and blob that it reads.
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
_MAGIC: Final = b"\xe5ar\x8esh\x9dt"


def prefix_end(prefix: bytes) -> bytes:
    """Return the key that follows all keys with this prefix of one byte."""
    return bytes((prefix[0] + 1,))


def record_key(topic_id: int, partition: int, offset: int) -> bytes:
    """Return the key of a record; keys of one partition sort by offset."""
    return _record_key.pack(b"r", topic_id, partition, offset)


def record_offset(key: bytes) -> int:
    """Return the offset in a record's key."""
    offset: int = _u64.unpack_from(key, 9)[0]
    return offset


def pack_record(timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    """Return the stored form of a record."""
    size = _NO_KEY if key is None else len(key)
    if value is None:
        return _head.pack(timestamp, size | _NO_VALUE) + (key or b"")
    return _head.pack(timestamp, size) + (key or b"") + value


def unpack_record(offset: int, data: bytes) -> StoredRecord:
    """Read the stored form of a record."""
    timestamp, size = _head.unpack_from(data)
    start = 12 + (size & ~(_NO_KEY | _NO_VALUE) if not size & _NO_KEY else 0)
    key = None if size & _NO_KEY else data[12:start]
    return StoredRecord(offset, timestamp, key, None if size & _NO_VALUE else data[start:])


def earliest_key(topic_id: int, partition: int) -> bytes:
    return _partition_key.pack(b"e", topic_id, partition)


def clean_key(topic_id: int, partition: int) -> bytes:
    return _partition_key.pack(b"c", topic_id, partition)


def next_key(topic_id: int, partition: int) -> bytes:
    """Return the key of the offset below which nothing is appended, since lost records may have had such offsets."""
    return _partition_key.pack(b"n", topic_id, partition)


def pack_pair(first: int, second: int) -> bytes:
    """Pack the values of `earliest_key` and `clean_key`."""
    return _pair.pack(first, second)


def unpack_pair(data: bytes) -> tuple[int, int]:
    """Return the numbers of a value of `earliest_key` or `clean_key`."""
    first, second = _pair.unpack(data)
    return first, second


def topic_key(name: str) -> bytes:
    return TOPIC_PREFIX + name.encode()


def pack_topic(topic_id: int, partitions: int) -> bytes:
    return _tail.pack(topic_id, partitions)


def unpack_topic(data: bytes) -> tuple[int, int]:
    """Return topic id and number of partitions."""
    topic_id, partitions = _tail.unpack(data)
    return topic_id, partitions


def pack_offset(offset: int) -> bytes:
    return _u64.pack(offset)


def unpack_offset(data: bytes) -> int:
    """Return what `pack_offset` packed."""
    offset: int = _u64.unpack(data)[0]
    return offset


def pack_marker(group: int) -> bytes:
    """Return the marker that opens the write of a group: recognizable in raw bytes of a damaged write-ahead log."""
    return _marker.pack(_MAGIC, group, xxh64_intdigest(_u64.pack(group)))


def unpack_marker(data: bytes) -> int:
    group: int = _marker.unpack(data)[1]
    return group


def last_marker(data: bytes) -> int:
    """Return the highest group number whose marker occurs in raw bytes, 0 for none."""
    highest, at = 0, data.find(_MAGIC)
    while at >= 0:
        if at + _marker.size <= len(data):
            _, group, digest = _marker.unpack_from(data, at)
            if digest == xxh64_intdigest(_u64.pack(group)):
                highest = max(highest, group)
        at = data.find(_MAGIC, at + 1)
    return highest
