"""Decodes by FFmpeg what libsndfile cannot read: recordings of phones and browsers, and video files.

PyAV, which includes FFmpeg, comes with the extra `media`. Only decoders and workers load it.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from streams.audio import container, decode, pcm
from streams.audio.decode import AudioFile, Claim
from streams.audio.sound_files import BUFFER_BYTES, DAMAGED
from streams.audio.sources import DescriptorSource, GuardedSource
from streams.models.protocol import Floats
from topics.errors import AudioError
from topics.media import Container, Media

with suppress(ImportError):
    import av

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer

#: FFmpeg's name of each container; none of its other readers is tried.
FORMATS: Final[dict[Container, str]] = {
    "mp4": "mov",
    "matroska": "matroska",
    "asf": "asf",
    "aac": "aac",
    "ac3": "ac3",
    "wavpack": "wv",
}
#: Streams without a header: FFmpeg estimates their length from the bit rate of the first frames.
ESTIMATED: Final = frozenset({"aac", "ac3"})
#: Codecs in common use for recording and publishing; PCM of any kind is allowed too.
CODECS: Final = frozenset(
    {"aac", "ac3", "alac", "amrnb", "amrwb", "eac3", "flac", "libopencore_amrnb", "libopencore_amrwb", "libopus"}
    | {"mp2", "mp2float", "mp3", "mp3float", "opus", "vorbis", "wavpack", "wmalossless", "wmapro", "wmav1", "wmav2"}
)
MISSING: Final = (
    "{} is read with an extra of this service: make extra NAME=media, or pip install 'earshot-server[media]',"
    " and restart the service"
)


def warm_up() -> None:
    """Import what PyAV would import with the first file, if it is installed."""
    if "av" in globals():
        for module in pkgutil.walk_packages(av.__path__, "av."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def is_needed(source: DescriptorSource | GuardedSource) -> bool:
    """Return whether this module reads a file's container; rewind the file."""
    return container.detect_file(source) in FORMATS


def open_file(source: DescriptorSource | GuardedSource, media: Media, longest_s: int, block_samples: int) -> AudioFile:
    """Open a file of one of `FORMATS` and decode its first audio stream.

    Raises:
        AudioTooLong: the header claims more than `longest_s`.
        AudioError: not the declared container, a damaged header, no audio, an unsupported codec, a header that exceeds
            a limit; or the extra is not installed.
    """
    kind = container.check_declared(source, media)
    if "av" not in globals():
        raise AudioError(MISSING.format(container.NAMES[kind]))
    reader: io.BufferedReader | GuardedSource
    if isinstance(source, DescriptorSource):
        reader = io.BufferedReader(io.FileIO(source.descriptor, closefd=False), BUFFER_BYTES)
    else:
        reader = source
    with _named("the audio cannot be read", source):
        file = av.open(reader, "r", format=FORMATS[kind], metadata_errors="ignore")
    stream = _audio_stream(file)
    frames = file.decode(stream)
    with _named("the audio cannot be read", source):
        # Only a frame states the true rate: some headers state half of it.
        first = next(frames, None)
    if first is None:
        raise AudioError("the data holds no audio")
    rate, channels = first.sample_rate, first.layout.nb_channels
    length, own_length = (None, None) if kind in ESTIMATED else (file.duration, stream.duration)
    claimed = None if length is None else length * rate // av.time_base
    decode.check_limits(rate, channels, claimed, longest_s)
    blocks = _blocks(chain([first], frames), first, source, block_samples // channels)
    # The duration of the whole file may be that of its video.
    own = None if own_length is None or stream.time_base is None else int(own_length * stream.time_base * rate)
    return AudioFile(rate, channels, blocks, longest_s, claimed, source.tell, Claim(own))


def _audio_stream(file: InputContainer) -> AudioStream:
    stream = next(iter(file.streams.audio), None)
    if stream is None:
        raise AudioError("the data holds no audio")
    codec = stream.codec_context
    if codec.name not in CODECS and not codec.name.startswith("pcm_"):
        raise AudioError(f"audio of the codec {codec.name[:40]} is not supported")
    # This process may not start processes or threads.
    codec.thread_count, codec.thread_type = 1, "NONE"
    return stream


def _blocks(
    frames: Iterator[AudioFrame], first: AudioFrame, source: DescriptorSource | GuardedSource, most: int
) -> Iterator[Floats]:
    """Yield channel means in blocks of at most `most` samples; frames have some thousand each."""
    layout = (first.sample_rate, first.layout.nb_channels)
    pieces: list[Floats] = []
    count = 0
    try:
        while True:
            with _named(DAMAGED, source):
                frame = next(frames, None)
            if frame is None:
                break
            if (frame.sample_rate, frame.layout.nb_channels) != layout:
                raise AudioError(f"{DAMAGED}: its rate or its channels change")
            samples = _samples(frame)
            if pieces and count + len(samples) > most:
                joined, pieces, count = pieces, [], 0
                yield from _mixed(joined, most)
            pieces.append(samples)
            count += len(samples)
    except AudioError:
        yield from _mixed(pieces, most)
        raise
    yield from _mixed(pieces, most)


def _mixed(pieces: Sequence[Floats], most: int) -> Iterator[Floats]:
    """Yield the channel means of joined pieces, at most `most` samples at a time: one frame may be longer."""
    if pieces:
        joined = np.concatenate(pieces)
        for start in range(0, len(joined), most):
            yield from pcm.mix(joined[start : start + most])


def _samples(frame: AudioFrame) -> Floats:
    """Return float32[n, channels] in -1..1."""
    data = frame.to_ndarray()
    samples = data.T if frame.format.is_planar else data.reshape(-1, frame.layout.nb_channels)
    if samples.dtype == np.uint8:
        return (samples.astype(np.float32) - np.float32(128)) / np.float32(128)
    if samples.dtype.kind == "i":
        return samples.astype(np.float32) * np.float32(0.5 ** (8 * samples.itemsize - 1))
    return samples.astype(np.float32, copy=False)


@contextmanager
def _named(fault: str, source: DescriptorSource | GuardedSource) -> Iterator[None]:
    """Turn FFmpeg's exceptions into audio errors, unless the file cannot be read.

    Raises:
        AudioError: FFmpeg raised an exception; the message begins with `fault`.
        OSError: the file cannot be read further.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        source.check()
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise AudioError(f"{fault}: {text}") from error
