"""Unpacks archives of models safely: only plain files, only inside the target, up to a limit of bytes.

The standard library reads names and extended headers at once, with whatever length they claim. So it reads the archive
through `_Bounded`, which limits each read, and all reads together, to what the headers of a model can need.
"""

import bz2
import io
import lzma
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Final

from streams.models.manifest import MAX_BYTES
from topics.errors import EngineError

MOST_FILES: Final = 1000
#: Characters of a name within an archive, and its depth of directories.
LONGEST_NAME: Final = 512
DEEPEST: Final = 16
BLOCK: Final = 1 << 20
#: Bytes of one extended header of a .tar (long names, times and the like), and of all its headers. Some versions of
#: Python take quadratic time in a header's length.
TAR_HEADER: Final = 2048
TAR_HEADERS: Final = MOST_FILES * 2560
#: Bytes of the directory of a .zip.
ZIP_DIRECTORY: Final = 1 << 20
#: Memory for decompressing a .tar.xz: `xz -9` needs 65 MiB.
XZ_MEMORY: Final = 128 << 20
#: Methods whose output can be bounded while it is read.
ZIP_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: Exceptions that the standard library raises on damaged archives.
DAMAGE: Final = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError,
    NotImplementedError,
)  # fmt: skip


def unpack(archive: Path, target: Path, most: int = MAX_BYTES) -> None:
    """Write the files of a .zip or a .tar (also .gz, .bz2, .xz) under `target`, at most `most` bytes in all.

    Raises:
        EngineError: it is neither, is damaged, has links or paths outside the target, or holds too much.
    """
    left = most
    try:
        target.mkdir(parents=True, exist_ok=True)
        zipped = zipfile.is_zipfile(archive)
        members = _zip_members(archive) if zipped else _tar_members(archive, target.parent, most)
        for count, (name, file) in enumerate(members):
            path = _inside(archive, name)
            if count >= MOST_FILES:
                raise EngineError(f"{archive.name}: holds more than {MOST_FILES} files")
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            with (target / path).open("xb") as out:
                # Counted while reading, because sizes in headers may be wrong.
                while block := file.read(BLOCK):
                    left -= len(block)
                    if left < 0:
                        raise EngineError(f"{archive.name}: holds more than {most} bytes")
                    out.write(block)
    except DAMAGE as error:
        raise EngineError(f"{archive.name}: cannot be unpacked: {' '.join(str(error).split())}") from error


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with _Bounded(archive, archive.name, ZIP_DIRECTORY) as file, zipfile.ZipFile(file) as pack:
        for info in pack.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise EngineError(f"{archive.name}: {_shown(info.filename)} is not a plain file")
            if info.compress_type not in ZIP_METHODS:
                raise EngineError(f"{archive.name}: {_shown(info.filename)} is not packed with deflate")
            if not info.filename.endswith("/"):  # `is_dir` fails on an empty name
                with pack.open(info) as content:
                    yield info.filename, content


def _tar_members(archive: Path, scratch: Path, most: int) -> Iterator[tuple[str, IO[bytes]]]:
    # Contents are read separately, so that the headers have a bound of their own.
    with (
        _decompressed(archive, scratch, most + TAR_HEADERS) as plain,
        _Bounded(plain, archive.name, TAR_HEADER, TAR_HEADERS) as headers,
        plain.open("rb") as contents,
    ):
        try:
            pack = tarfile.TarFile(fileobj=headers)
        except tarfile.ReadError as error:
            raise EngineError(f"{archive.name}: is neither a .zip nor a .tar") from error
        for member in pack:
            if not (member.isreg() or member.isdir()) or member.issparse():
                raise EngineError(f"{archive.name}: {_shown(member.name)} is not a plain file")
            if member.isreg():
                contents.seek(member.offset_data)
                yield member.name, io.BufferedReader(_Part(contents, member.size))


class _Bounded(io.FileIO):
    """A file with bounds on each read and on all reads together."""

    def __init__(self, path: Path, archive: str, longest: int, most: int | None = None) -> None:
        super().__init__(path)
        self._archive = archive
        self._longest = longest
        self._left = most

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most `size` bytes, or with -1 as many as allowed; raise EngineError beyond a bound."""
        if size is None or size < 0:
            size = self._longest
        if self._left is not None:
            self._left -= size
        if size > self._longest or (self._left is not None and self._left < 0):
            raise EngineError(f"{self._archive}: its headers are too long, or it holds too many files")
        return super().read(size) or b""


class _Part(io.RawIOBase):
    """The next `size` bytes of an open file; raises EOFError if the file ends early."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        if not data and self._left:
            raise EOFError("cut short")
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


@contextmanager
def _decompressed(archive: Path, scratch: Path, most: int) -> Iterator[Path]:
    """Yield the .tar itself, or a temporary file with its content if it is compressed."""
    with archive.open("rb") as packed:
        blocks = _blocks(packed)
        if blocks is None:
            yield archive
            return
        with tempfile.NamedTemporaryFile(dir=scratch) as plain:
            left = most
            for block in blocks:
                left -= len(block)
                if left < 0:
                    raise EngineError(f"{archive.name}: holds more than {most} bytes")
                plain.write(block)
            plain.flush()
            yield Path(plain.name)


def _blocks(packed: BinaryIO) -> Iterator[bytes] | None:
    """Return the content of a .gz, .bz2 or .xz with one stream, block by block; None for any other file."""
    magic = packed.read(6)
    packed.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return _inflated(packed)
    if magic.startswith(b"BZh"):
        return _unpacked(packed, bz2.BZ2Decompressor())
    if magic == b"\xfd7zXZ\0":
        return _unpacked(packed, lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY))
    return None


def _inflated(packed: BinaryIO) -> Iterator[bytes]:
    # The module gzip reads a header, which may have any length, a byte at a time.
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
    while not inflater.eof:
        data = inflater.unconsumed_tail or packed.read(BLOCK)
        block = inflater.decompress(data, BLOCK)
        if not data and not block:
            raise EOFError("cut short")
        yield block


def _unpacked(packed: BinaryIO, unpacker: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> Iterator[bytes]:
    while not unpacker.eof:
        data = packed.read(BLOCK) if unpacker.needs_input else b""
        if unpacker.needs_input and not data:
            raise EOFError("cut short")
        yield unpacker.decompress(data, BLOCK)


def _inside(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not path.parts:
        raise EngineError(f"{archive.name}: {_shown(name)} leads out of it")
    if len(name) > LONGEST_NAME or len(path.parts) > DEEPEST:
        raise EngineError(f"{archive.name}: {_shown(name)} is too long a name")
    return path


def _shown(name: str) -> str:
    return repr(name[:80])
