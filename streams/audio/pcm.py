"""Converts raw PCM bytes to floats; full scale is -1 to 1."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from streams.models.protocol import Floats
from topics.errors import AudioError

#: Some programs send integers as floats, so floats up to the largest 32-bit integer pass; larger ones overflow.
MAX_AMPLITUDE: Final = float(2**31)


def frame_bytes(sample_format: str, channels: int) -> int:
    """Return the bytes of one frame: a sample of every channel."""
    return int(sample_format[1:-2]) // 8 * channels


def decode(data: bytes | memoryview, sample_format: str, channels: int) -> Floats:
    """Decode interleaved samples in a format of `topics.media`, such as "s16le", to float32[frames, channels].

    Raises:
        AudioError: the bytes are not a whole number of frames, or a float is not finite.
    """
    frames = decode_unchecked(data, sample_format, channels)
    return check_plausible(frames) if sample_format.startswith("f") else frames


def decode_unchecked(data: bytes | memoryview, sample_format: str, channels: int) -> Floats:
    """Decode like `decode`, but accept any float values.

    Raises:
        AudioError: the bytes are not a whole number of frames.
    """
    size = frame_bytes(sample_format, channels)
    if len(data) % size:
        raise AudioError(f"{len(data)} bytes of raw audio are not a whole number of frames of {size} bytes")
    kind, bits, order = sample_format[0], int(sample_format[1:-2]), "<" if sample_format.endswith("le") else ">"
    if kind == "f":
        return np.frombuffer(data, f"{order}f{bits // 8}").astype(np.float32).reshape(-1, channels)
    integers = _int24(data, order) if bits == 24 else np.frombuffer(data, f"{order}i{bits // 8}")
    if kind == "u":
        # Unsigned silence lies in the middle of the range; flipping the highest bit moves it to zero.
        integers = integers ^ np.array(-1 << (integers.itemsize * 8 - 1), integers.dtype)
    scale = np.float32(0.5 ** (integers.itemsize * 8 - 1))
    return np.multiply(integers, scale, dtype=np.float32).reshape(-1, channels)


def _int24(data: bytes | memoryview, order: str) -> npt.NDArray[np.int32]:
    """Return the samples in the upper 24 of 32 bits, so that they scale like 32-bit samples."""
    triples = np.frombuffer(data, np.uint8).reshape(-1, 3)
    wide = np.zeros((len(triples), 4), np.uint8)
    wide[:, 1:] = triples if order == "<" else triples[:, ::-1]
    return wide.view("<i4")[:, 0]


def check_plausible(samples: Floats) -> Floats:
    """Check float samples and return them unchanged.

    Raises:
        AudioError: a sample is NaN, infinite or absurdly large. The data is not of the declared format, and one such
            sample would spoil every window that contains it.
    """
    # Maximum and minimum are NaN if any sample is.
    if samples.size and not (samples.max() <= MAX_AMPLITUDE and samples.min() >= -MAX_AMPLITUDE):
        raise AudioError("the float samples are not all finite numbers of a plausible size")
    return samples


def count_plausible(frames: Floats) -> int:
    """Return how many frames of float32[n, channels] precede the first implausible sample."""
    good = (np.abs(frames) <= MAX_AMPLITUDE).all(axis=1)
    return len(frames) if good.all() else int(good.argmin())


def to_mono(frames: Floats) -> Floats:
    """Return the channel mean of float32[frames, channels] as float32[frames]."""
    if frames.shape[1] == 1:
        return frames[:, 0]
    # Column by column: numpy's mean over a short axis is ten times slower.
    mixed = frames[:, 0] + frames[:, 1]
    for channel in range(2, frames.shape[1]):
        mixed += frames[:, channel]
    mixed /= np.float32(frames.shape[1])
    return mixed


def mix(frames: Floats) -> Iterator[Floats]:
    """Yield float32[n], the channel mean of float32[n, channels].

    Raises:
        AudioError: a sample is not plausible; the frames before it are yielded first.
    """
    try:
        check_plausible(frames)
    except AudioError:
        good = count_plausible(frames)
        if good:
            yield to_mono(frames[:good])
        raise
    if len(frames):
        yield to_mono(frames)
