"""Blob files: which hold deleted values, and the keys of their records.

RocksDB keeps large values in these files, and deletes a file once it has no live value. It rewrites only the oldest
ones before, so that a deleted value may stay for as long as its neighbour. It counts deleted values once compaction
has dropped their keys.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from rocksdict import Rdict

_GARBAGE: Final = re.compile(r"^blob_file_number: (\d+) .*garbage_blob_count: [1-9]", re.MULTILINE)
#: A file begins with 30 bytes, and ends with 32. A record has a head, with the lengths of key and value first.
_BEGIN, _END, _HEAD_BYTES = 30, 32, 32
_LENGTHS: Final = Struct("<QQ")


def with_garbage(path: Path, rocks: Rdict) -> list[Path]:
    """Return the blob files of an open database that hold deleted values."""
    listed = rocks.property_value("rocksdb.sstables") or ""
    return [path / f"{int(number):06}.blob" for number in _GARBAGE.findall(listed)]


def keys(file: Path) -> Iterator[tuple[bytes, int]]:
    """Yield the key and the length of the value of each record, also deleted ones; raise OSError if it is gone."""
    with file.open("rb") as data:
        at, end = _BEGIN, file.stat().st_size - _END
        while at < end:
            data.seek(at)
            key_bytes, value_bytes = _LENGTHS.unpack(data.read(_HEAD_BYTES)[: _LENGTHS.size])
            yield data.read(key_bytes), value_bytes
            at += _HEAD_BYTES + key_bytes + value_bytes
