"""Recordings as parts of a multipart body."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from os import SEEK_END, SEEK_SET, PathLike
from pathlib import Path
from typing import BinaryIO, Final, cast

from . import _media
from ._calls import Flow, Upload, sendable, work

#: Bytes of a piece of live audio: three eighths of a second of a microphone. Most formats' frames divide it.
PIECE: Final = 12_000


#: A recording: a path, its bytes, or a file that is open for reading bytes.
Audio = str | PathLike[str] | bytes | BinaryIO


def opened(audio: Audio) -> Flow[AbstractContextManager[BinaryIO]]:
    """Return a file that is closed at the end of a `with`, unless it was open before.

    Raises:
        TypeError: it is not a recording.
        OSError: there is no such file.
    """
    if isinstance(audio, bytes | bytearray):
        return nullcontext(BytesIO(audio))
    if isinstance(audio, str | PathLike):
        path = Path(audio)
        return (yield from work(lambda: path.open("rb")))
    if not hasattr(audio, "read") or hasattr(audio, "encoding"):
        raise TypeError(f"a path, bytes or a file open for reading bytes are needed, not {type(audio).__name__}")
    return nullcontext(audio)


def pieces(audio: Audio | Iterable[bytes]) -> Iterator[bytes]:
    """Yield a recording or a pipe's output piece by piece; yield existing pieces unchanged.

    Raises:
        OSError: there is no such file.
    """
    if isinstance(audio, str | PathLike):
        with Path(audio).open("rb") as file:
            yield from pieces(file)
    elif isinstance(audio, bytes | bytearray):
        yield from pieces(BytesIO(audio))
    elif read := getattr(audio, "read", None):
        while piece := read(PIECE):
            yield piece
    else:
        try:
            yield from audio
        except (SystemExit, KeyboardInterrupt) as error:
            # It would end a thread, or a loop, without a word.
            raise RuntimeError(f"the audio ended with {error!r}") from error


def upload(
    fields: Mapping[str, str], part: str, file: BinaryIO, name: str | None = None, content_type: str | None = None
) -> Flow[Upload]:
    """Return the upload of an open file; by default with its own name and content type.

    Raises:
        OSError: the file cannot be read.
    """
    kind = content_type or (yield from work(lambda: _media.content_type_of(file))) or _media.OCTETS
    found = cast("BinaryIO", (yield from work(lambda: _Found(file))))
    return Upload(fields, part, sendable(name or _media.name_of(file)), kind, found)


class _Found:
    """An open file, no longer than it was found: a recording may grow while it is sent, but not its Content-Length."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = file.seek(0, SEEK_END)

    def read(self, size: int) -> bytes:
        left = self._end - self._file.tell()
        data = self._file.read(min(size, left))
        if left and size and not data:
            raise OSError("the file became shorter while it was sent")
        return data

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        return self._file.seek(self._end if whence == SEEK_END else offset)

    def tell(self) -> int:
        return self._file.tell()
