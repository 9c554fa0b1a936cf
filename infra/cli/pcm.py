"""Raw PCM in blocks of half a second, from an audio file or a pipe."""

from __future__ import annotations

import io
import re
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from topics import media
from topics.errors import AudioError

if TYPE_CHECKING:
    from streams.audio.decode import AudioFile

Read = Callable[[int], bytes]

BLOCK_SECONDS: Final = 0.5
FORMAT: Final = re.compile(r"[suf](16|24|32)(le|be)?")
NO_FORMAT: Final = "{!r} is not a sample format: s, u or f, then 16, 24 or 32, then le (which may be left out) or be"
_RIFF_BYTES: Final = 12
_CHUNK: Final = struct.Struct("<4sI")
#: Kind, channels, rate, bytes per second, bytes of a frame, and bits of a sample.
_FORMAT: Final = struct.Struct("<2H2I2H")
_EXTENSIBLE: Final = 0xFFFE
#: Where the kind of an extensible format stands.
_SUBFORMAT: Final = 24
#: Streaming writers put lengths from here on when they do not know the length.
_UNKNOWN_BYTES: Final = 0x7FFF0000
#: The longest chunk before the samples.
_LONGEST_CHUNK: Final = 1 << 24
_STDIN: Final = "the standard input"
_SAVE: Final = "save it to a file, and run earshot listen with its path"


class PcmSource(msgspec.Struct, frozen=True):
    """Audio to stream: its content type, its length in seconds if known, and its blocks."""

    content_type: str
    seconds: float | None
    blocks: Iterator[bytes]


def from_file(path: Path) -> PcmSource:
    """Decode any recording that the service reads to 16-bit blocks of one channel, lazily.

    Raises:
        OSError: the file is missing.
        AudioError: it is not audio.
    """
    with path.open("rb") as source, _opened(path, source) as audio:
        seconds = None if audio.frames is None else audio.frames / audio.rate
        return PcmSource(_content_type(audio.rate, "s16le", 1), seconds, _decoded(path))


def from_pipe(pipe: BinaryIO, rate: int, sample_format: str, channels: int) -> PcmSource:
    """Read blocks of a raw stream as they arrive, up to its end; a partial frame at the end is dropped.

    The header of a WAV stream, which `arecord` and FFmpeg write, is read, and tells the type.

    Raises:
        AudioError: no such sample format; a container other than WAV of plain samples.
    """
    match = FORMAT.fullmatch(sample_format)
    if match is None:
        raise AudioError(NO_FORMAT.format(sample_format))
    frame = int(match[1]) // 8 * channels
    head = pipe.read(int(rate * BLOCK_SECONDS) * frame)
    read = _continued(head, pipe)
    if head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:12] == b"WAVE":
        return _wav_stream(read)
    return PcmSource(_content_type(rate, sample_format, channels), None, _piped(read, rate, frame))


def _continued(head: bytes, pipe: BinaryIO) -> Read:
    """Return a function that reads `head` and then a pipe."""
    beginning = io.BytesIO(head)

    def read(size: int) -> bytes:
        data = beginning.read(size)
        return data if len(data) == size or not size else data + pipe.read(size - len(data))

    return read


def _wav_stream(read: Read) -> PcmSource:
    """Return the samples of a WAV stream.

    Raises:
        AudioError: they are compressed, or the header is damaged.
    """
    fields: tuple[int, ...] = ()
    read(_RIFF_BYTES)
    while len(header := read(_CHUNK.size)) == _CHUNK.size:
        name, size = _CHUNK.unpack(header)
        if name == b"data" and fields:
            kind, channels, rate, _, frame, bits = fields
            sample_format = f"{'u' if bits == 8 else 's' if kind == 1 else 'f'}{bits}{'' if bits == 8 else 'le'}"
            if kind in (1, 3) and frame == bits // 8 * channels and (bits == 8 or FORMAT.fullmatch(sample_format)):
                # A program that writes to a pipe does not know the length.
                length = size if 0 < size < _UNKNOWN_BYTES else None
                return PcmSource(_content_type(rate, sample_format, channels), None, _piped(read, rate, frame, length))
            break
        body = read(min(size + size % 2, _LONGEST_CHUNK))
        if name == b"fmt " and len(body) >= _FORMAT.size:
            fields = _FORMAT.unpack_from(body)
            if fields[0] == _EXTENSIBLE and len(body) > _SUBFORMAT:
                fields = (body[_SUBFORMAT], *fields[1:])
    raise AudioError(f"{_STDIN} is a WAV file without plain samples: {_SAVE}")


def paced(
    blocks: Iterator[bytes],
    speed: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """Yield block n after the time of n blocks at `speed`; a late block is yielded at once."""
    start = clock()
    for number, block in enumerate(blocks):
        early = start + number * BLOCK_SECONDS / speed - clock()
        if early > 0:
            sleep(early)
        yield block


def _content_type(rate: int, sample_format: str, channels: int) -> str:
    suffix = f"; channels={channels}" if channels > 1 else ""
    return f"audio/x-raw; rate={rate}; format={sample_format}{suffix}"


def _opened(path: Path, source: BinaryIO) -> AudioFile:
    from streams.audio import decode

    try:
        return decode.open_file(source, media.parse("application/octet-stream"))
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from None


def _decoded(path: Path) -> Iterator[bytes]:
    from streams.audio import wav

    with path.open("rb") as source, _opened(path, source) as audio:
        size, rest = 2 * int(audio.rate * BLOCK_SECONDS), b""
        try:
            for samples in audio.blocks():
                rest += wav.to_pcm16(samples)
                while len(rest) >= size:
                    yield rest[:size]
                    rest = rest[size:]
        except AudioError as error:
            raise AudioError(f"{path}: {audio.fault(error)}") from None
        if rest:
            yield rest


def _piped(read: Read, rate: int, frame: int, length: int | None = None) -> Iterator[bytes]:
    """Yield blocks of whole frames, up to `length` bytes.

    Raises:
        AudioError: it is a container.
    """
    from streams.audio.raw_check import container_of

    size, sent = int(rate * BLOCK_SECONDS) * frame, 0
    while block := read(size if length is None else min(size, length - sent)):
        if not sent and (found := container_of(block)) is not None:
            raise AudioError(f"{_STDIN} is {found[0]}: {_SAVE}")
        sent += len(block)
        if whole := len(block) // frame * frame:
            yield block[:whole]
