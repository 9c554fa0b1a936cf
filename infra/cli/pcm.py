"""Raw PCM in blocks of half a second, from an audio file or a pipe."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from topics.errors import AudioError

BLOCK_SECONDS: Final = 0.5
FORMAT: Final = re.compile(r"[suf](16|24|32)(le|be)?")
NO_FORMAT: Final = "{!r} is not a sample format: s, u or f, then 16, 24 or 32, then le (which may be left out) or be"


class PcmSource(msgspec.Struct, frozen=True):
    """Audio to stream: its content type, its length in seconds if known, and its blocks."""

    content_type: str
    seconds: float | None
    blocks: Iterator[bytes]


def from_file(path: Path) -> PcmSource:
    """Decode any file that libsndfile reads to 16-bit blocks, lazily.

    Raises:
        OSError: the file is missing.
        AudioError: it is not audio.
    """
    import soundfile

    with path.open("rb"):
        pass
    try:
        info = soundfile.info(path)
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{path}: libsndfile cannot read it: {error.error_string}") from None
    return PcmSource(_content_type(info.samplerate, "s16le", info.channels), info.duration, _decoded(path))


def from_pipe(pipe: BinaryIO, rate: int, sample_format: str, channels: int) -> PcmSource:
    """Read blocks of a raw stream as they arrive, up to its end; a partial frame at the end is dropped.

    Raises:
        AudioError: no such sample format.
    """
    match = FORMAT.fullmatch(sample_format)
    if match is None:
        raise AudioError(NO_FORMAT.format(sample_format))
    frame = int(match[1]) // 8 * channels
    return PcmSource(_content_type(rate, sample_format, channels), None, _piped(pipe, rate, frame))


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


def _decoded(path: Path) -> Iterator[bytes]:
    import numpy as np
    import soundfile

    with soundfile.SoundFile(path) as file:
        # Read as floats, because libsndfile does not scale float files that it reads as integers.
        for block in file.blocks(int(file.samplerate * BLOCK_SECONDS), dtype="float32"):
            yield np.clip(np.rint(block * 32768.0), -32768, 32767).astype("<i2").tobytes()


def _piped(pipe: BinaryIO, rate: int, frame: int) -> Iterator[bytes]:
    size = int(rate * BLOCK_SECONDS) * frame
    while block := pipe.read(size):
        whole = len(block) // frame * frame
        if whole:
            yield block[:whole]
