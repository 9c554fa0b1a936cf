"""Finds what a closed RocksDB lost, because it numbers its changes and its files.

RocksDB notices neither a list of files (MANIFEST) that lost its last entries, nor a write-ahead log that lost its end
while a newer one exists. It opens what is left, and deletes the files that are not on the list.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from rocksdict import AccessType, Options, Rdict

#: A write-ahead log has blocks of this size. A write is one piece, or several that do not cross blocks.
BLOCK_BYTES: Final = 32 * 1024
#: Checksum, length and kind of a piece.
_PIECE: Final = Struct("<IHB")
#: The number of the first change in a write, and the count of its changes.
_WRITE: Final = Struct("<QI")
_WHOLE, _FIRST, _LAST = 1, 2, 4


def gap(path: Path, options: Callable[[], Options]) -> str | None:
    """Return what is missing between the listed tables and the write-ahead logs; None if nothing is.

    This changes no files. RocksDB's exceptions pass through.
    """
    logs = _begun(path)
    if not logs:
        return None
    expected = _listed(path, options) + 1
    for index, (file, first) in enumerate(logs):
        if first > expected:
            return f"changes {expected} to {first - 1} are missing before those in {file.name}"
        if index + 1 < len(logs):
            expected = max(expected, _end(file))
    return None


def is_complete(path: Path, db: Rdict, options: Callable[[], Options]) -> bool:
    """Return whether the list of files has all tables, and no changes are missing after them.

    `db` is the open database of `path`. A kill leaves unlisted tables too: older ones were compacted away, newer ones
    are unfinished, and the write-ahead logs still have their changes.
    """
    if gap(path, options) is not None:
        return False
    newest = max((int(Path(file["name"]).stem) for file in db.live_files()), default=-1)
    return bool(_begun(path)) or all(int(file.stem) <= newest for file in _numbered(path, "*.sst"))


def _numbered(path: Path, kind: str) -> list[Path]:
    """Return the files of a kind, the oldest first."""
    files = (file for file in path.glob(kind) if file.stem.isdecimal())
    return sorted(files, key=lambda file: int(file.stem))


def _begun(path: Path) -> list[tuple[Path, int]]:
    """Return the write-ahead logs that have changes, the oldest first, with the numbers of their first changes."""
    return [(file, first) for file in _numbered(path, "*.log") if (first := _first(file)) is not None]


def _listed(path: Path, options: Callable[[], Options]) -> int:
    """Return the number of the last change that the list of files knows."""
    without_logs = options()
    without_logs.set_wal_dir(str(path.parent))  # Has no write-ahead logs.
    db = Rdict(str(path), without_logs, access_type=AccessType.read_only(False))
    try:
        number: int = db.latest_sequence_number()
        return number
    finally:
        db.close()


def _first(file: Path) -> int | None:
    """Return the number of the first change in a write-ahead log; None if it has none."""
    with file.open("rb") as data:
        head = data.read(_PIECE.size + _WRITE.size)
    if len(head) < _PIECE.size + _WRITE.size or _PIECE.unpack_from(head)[2] not in (_WHOLE, _FIRST):
        return None
    number: int = _WRITE.unpack_from(head, _PIECE.size)[0]
    return number


def _end(file: Path) -> int:
    """Return the number after the last complete write of a write-ahead log; 0 if it has none."""
    following, is_complete = b"", False
    with file.open("rb") as data:
        for block in range(file.stat().st_size // BLOCK_BYTES, -1, -1):
            data.seek(block * BLOCK_BYTES)
            pieces = list(_pieces(data.read(BLOCK_BYTES)))
            for index in range(len(pieces) - 1, -1, -1):
                kind, content = pieces[index]
                is_complete = is_complete or kind in (_WHOLE, _LAST)
                if kind in (_WHOLE, _FIRST):
                    # The head of a write may continue in the next block.
                    number, count = _WRITE.unpack_from((content + following)[: _WRITE.size].ljust(_WRITE.size, b"\0"))
                    return int(number + count if is_complete else number)
            following = pieces[0][1] if pieces else b""
    return 0


def _pieces(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kinds and contents of the complete pieces of a block."""
    at = 0
    while at + _PIECE.size <= len(block):
        _, length, kind = _PIECE.unpack_from(block, at)
        at += _PIECE.size + length
        if not kind or at > len(block):
            return
        yield kind, block[at - length : at]
