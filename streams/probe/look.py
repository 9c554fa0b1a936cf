"""The beginning of a recording, decoded: is this audio, and which?"""

from __future__ import annotations

import io
from typing import BinaryIO, Final

from streams.audio import container, decode, pcm
from topics.errors import AudioError, AudioTooLong
from topics.media import Media
from topics.ports.prober import ProbeResult

UNDECLARED: Final = Media("application/octet-stream", "any")
#: Samples of all channels that are decoded at a time: little more than the second that is looked at.
BLOCK_SAMPLES: Final = 1 << 16


def look(source: BinaryIO, declared: Media | None) -> ProbeResult:
    """Decode the first second of a seekable file; `declared` is given for raw PCM alone.

    Raises:
        AudioTooLong: it is longer than anything that is analysed.
        AudioError: it is no audio that can be analysed.
    """
    source.seek(0)
    media = declared or UNDECLARED
    if media.container == "raw":
        return _raw(source, media)
    found = container.detect(source.read(container.HEAD))
    source.seek(0)
    if found is None:
        # Named here, for nobody declared a type that the decoder could compare it with.
        raise AudioError("the data is no audio file that is supported" if source.read(1) else "the data holds no audio")
    audio = decode.open_file(source, media, block_samples=BLOCK_SAMPLES)
    _first_second(audio)
    length_ms = None if audio.frames is None else audio.frames * 1000 // audio.rate
    return ProbeResult(f"audio/{found}", found, audio.rate, audio.channels, length_ms)


def _raw(source: BinaryIO, media: Media) -> ProbeResult:
    size, frame = source.seek(0, io.SEEK_END), pcm.frame_bytes(media.sample_format, media.channels)
    if size % frame:
        raise AudioError(f"{size} bytes of raw audio are not a whole number of frames of {frame} bytes")
    if size > media.rate * frame * decode.MAX_FILE_S:
        raise AudioTooLong(f"the audio is longer than {decode.MAX_FILE_S} s")
    source.seek(0)
    _first_second(decode.open_file(source, media, block_samples=BLOCK_SAMPLES))
    content_type = f"{media.declared}; rate={media.rate}; format={media.sample_format}; channels={media.channels}"
    return ProbeResult(content_type, "raw", media.rate, media.channels, size // frame * 1000 // media.rate)


def _first_second(audio: decode.AudioFile) -> None:
    frames = 0
    for block in audio.blocks():
        frames += len(block)
        if frames >= audio.rate:
            return
