"""Decodes the first second of a recording, to check that it is audio and find its container, rate and length."""

import io
from typing import BinaryIO, Final

from streams.audio import decode, raw_check
from streams.audio.decode import OpenFile
from topics.errors import AudioError, AudioTooLong
from topics.media import Media
from topics.ports.prober import ProbeResult

UNDECLARED: Final = Media("application/octet-stream", "any")
#: Samples decoded at a time, over all channels: little more than one second.
BLOCK_SAMPLES: Final = 1 << 16
CPU_SECONDS: Final = 2.0


def probe_recording(source: BinaryIO, declared: Media | None, open_file: OpenFile = decode.open_file) -> ProbeResult:
    """Decode the first second of a seekable file; only raw PCM, which cannot be recognised, must be `declared`.

    Raises:
        AudioTooLong: the recording exceeds the maximum length.
        AudioError: it is not supported audio.
    """
    source.seek(0)
    media = declared or UNDECLARED
    if media.container == "raw":
        return _raw(source, media)
    with open_file(source, media, block_samples=BLOCK_SAMPLES) as audio:
        _first_second(audio)
    length_ms = None if audio.frames is None else audio.frames * 1000 // audio.rate
    return ProbeResult(f"audio/{audio.kind}", audio.kind, audio.rate, audio.channels, length_ms)


def _raw(source: BinaryIO, media: Media) -> ProbeResult:
    size, frame = source.seek(0, io.SEEK_END), media.frame_bytes
    if size % frame:
        raise AudioError(f"{size} bytes of raw audio are not a whole number of frames of {frame} bytes")
    if size > media.rate * frame * decode.MAX_FILE_S:
        raise AudioTooLong(f"the audio is longer than {decode.MAX_FILE_S} s")
    source.seek(0)
    raw_check.check_beginning(media, source.read(raw_check.HEAD))
    source.seek(0)
    _first_second(decode.open_file(source, media, block_samples=BLOCK_SAMPLES))
    return ProbeResult(media.content_type, "raw", media.rate, media.channels, size // frame * 1000 // media.rate)


def _first_second(audio: decode.AudioFile) -> None:
    frames = 0
    for block in audio.blocks(CPU_SECONDS):
        frames += len(block)
        if frames >= audio.rate:
            return
