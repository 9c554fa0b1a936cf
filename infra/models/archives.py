"""Archives of models, unpacked with care: plain files only, inside the target only, up to a limit of bytes."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, Final

from streams.models.manifest import MAX_BYTES
from topics.errors import EngineError

MOST_FILES: Final = 1000
BLOCK: Final = 1 << 20
#: Exceptions that the standard library raises on damaged archives.
DAMAGE: Final = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, OSError, RuntimeError, ValueError,
    NotImplementedError,
)  # fmt: skip


def unpack(archive: Path, target: Path, most: int = MAX_BYTES) -> None:
    """Write the files of a .zip or a .tar (also .gz, .bz2, .xz) under `target`, at most `most` bytes in all.

    Raises:
        EngineError: it is neither, is damaged, has links or paths outside the target, or holds too much.
    """
    left = most
    try:
        for count, (name, file) in enumerate(_members(archive)):
            path = _inside(archive, name)
            if count >= MOST_FILES:
                raise EngineError(f"{archive.name}: holds more than {MOST_FILES} files")
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            with (target / path).open("xb") as out:
                # Counted while reading: sizes in headers may be wrong.
                while block := file.read(BLOCK):
                    left -= len(block)
                    if left < 0:
                        raise EngineError(f"{archive.name}: holds more than {most} bytes")
                    out.write(block)
    except DAMAGE as error:
        raise EngineError(f"{archive.name}: cannot be unpacked: {' '.join(str(error).split())}") from error


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and the content of each file."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as pack:
            for info in pack.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise EngineError(f"{archive.name}: {info.filename} is no plain file")
                if not info.is_dir():
                    with pack.open(info) as file:
                        yield info.filename, file
        return
    if not tarfile.is_tarfile(archive):
        raise EngineError(f"{archive.name}: is neither a .zip nor a .tar")
    with tarfile.open(archive) as pack:
        for member in pack:
            if not (member.isfile() or member.isdir()):
                raise EngineError(f"{archive.name}: {member.name} is no plain file")
            content = pack.extractfile(member)
            if content is not None:
                with content:
                    yield member.name, content


def _inside(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not path.parts:
        raise EngineError(f"{archive.name}: {name!r} leads out of it")
    return path
