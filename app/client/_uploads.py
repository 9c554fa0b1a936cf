"""Recordings that are sent as a part of a multipart body."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final

from . import _media
from ._calls import Flow, Upload, sendable, work

OCTETS: Final = "application/octet-stream"


def opened(audio: Path | BinaryIO) -> Flow[AbstractContextManager[BinaryIO]]:
    """Return a file that is closed at the end of a `with`, unless it was open before.

    Raises:
        OSError: there is no such file.
    """
    if isinstance(audio, Path):
        return (yield from work(lambda: audio.open("rb")))
    return nullcontext(audio)


def upload(
    fields: Mapping[str, str], part: str, file: BinaryIO, name: str | None = None, content_type: str | None = None
) -> Flow[Upload]:
    """Return the upload of an open file, with its own name and content type where none is given.

    Raises:
        OSError: the file cannot be read.
    """
    kind = content_type or (yield from work(lambda: _media.content_type_of(file))) or OCTETS
    return Upload(fields, part, sendable(name or _media.name_of(file)), kind, file)
