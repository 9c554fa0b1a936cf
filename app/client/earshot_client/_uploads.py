"""Recordings as parts of a multipart body."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final

from . import _media
from ._calls import Flow, Upload, sendable, work

OCTETS: Final = "application/octet-stream"
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
        yield from audio


def upload(
    fields: Mapping[str, str], part: str, file: BinaryIO, name: str | None = None, content_type: str | None = None
) -> Flow[Upload]:
    """Return the upload of an open file; by default with its own name and content type.

    Raises:
        OSError: the file cannot be read.
    """
    kind = content_type or (yield from work(lambda: _media.content_type_of(file))) or OCTETS
    return Upload(fields, part, sendable(name or _media.name_of(file)), kind, file)
