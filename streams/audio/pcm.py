"""Converts raw PCM bytes to floats, of which full scale is -1 to 1, and mixes channels."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from streams.models.protocol import Floats
from topics.errors import AudioError

#: 36 dB above full scale. Loud mixes exceed full scale by less, and integers written as floats exceed this unless they
#: are silent.
MAX_AMPLITUDE: Final = 64.0
#: Frames over which `to_mono` decides whether channels cancel each other, unless the caller names another number.
MIX_FRAMES: Final = 1024
#: The same for raw PCM: blocks of 20 ms, so that chunks of half a second hold whole ones at common rates.
_RAW_MIXES: Final = 50
#: Channels cancel each other if the energy of their sum is below this share of the sum of their energies. The share is
#: 1 for unrelated channels, and 2 for two equal ones.
CANCELLED: Final = 1 / 20
#: Energies that decide are sums of integers, because a sum of floats depends on its order.
_STEPS: Final = np.float32(2**14)


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
    size = int(sample_format[1:-2]) // 8 * channels
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
        first = samples[~(np.abs(samples) <= MAX_AMPLITUDE)][0]
        if not np.isfinite(first):
            raise AudioError(f"the float samples are not all finite numbers: one is {first}")
        raise AudioError(
            f"a float sample is {first:.6g}, and full scale is -1 to 1 (at most {MAX_AMPLITUDE:g} is accepted). "
            "If the samples are integers, divide them by their full scale (32768 for 16 bits), or save them as integers"
        )
    return samples


def count_plausible(frames: Floats) -> int:
    """Return how many frames of float32[n, channels] precede the first implausible sample."""
    good = (np.abs(frames) <= MAX_AMPLITUDE).all(axis=1)
    return len(frames) if good.all() else int(good.argmin())


def mix_frames(rate: int) -> int:
    """Return the number of frames in a block of raw PCM for `to_mono`. Blocks begin at multiples of it."""
    return rate // _RAW_MIXES


def to_mono(frames: Floats, block: int = MIX_FRAMES) -> Floats:
    """Return the channel mean of float32[frames, channels] as float32[frames].

    In each `block` of frames whose channels cancel each other, as if one is inverted, return the first loud channel
    instead. A block's samples alone decide, so the result is the same however audio is cut between blocks.
    """
    if frames.shape[1] == 1:
        return frames[:, 0]
    # Column by column: numpy's mean over a short axis is ten times slower.
    mixed = frames[:, 0] + frames[:, 1]
    for channel in range(2, frames.shape[1]):
        mixed += frames[:, channel]
    # Energies of floats find the blocks that may be cancelled, and integers decide.
    candidates = _energies(mixed, block) < 2 * CANCELLED * _energies(frames, block)
    mixed /= np.float32(frames.shape[1])
    for number in np.flatnonzero(candidates):
        part = slice(number * block, (number + 1) * block)
        if (loud := _loud_channel(frames[part])) is not None:
            mixed[part] = frames[part, loud]
    return mixed


def _energies(samples: Floats, block: int) -> npt.NDArray[np.float32]:
    """Return the sum of squares of each block, the last of which may be shorter."""
    whole = len(samples) // block
    rows = samples[: whole * block].reshape(whole, block * samples[:1].size)
    rest = samples[whole * block :].ravel()
    energies = np.einsum("ij,ij->i", rows, rows)
    return np.append(energies, np.dot(rest, rest)) if rest.size else energies


def _loud_channel(frames: Floats) -> int | None:
    """Return the first channel with at least half the energy of the loudest, if the channels cancel each other."""
    steps = np.rint(frames * _STEPS).astype(np.int64)
    energies = np.square(steps).sum(axis=0)
    if np.square(steps.sum(axis=1)).sum() >= CANCELLED * int(energies.sum()):
        return None
    return int((2 * energies >= energies.max()).argmax())


def mix(frames: Floats, block: int = MIX_FRAMES) -> Iterator[Floats]:
    """Yield float32[n], as `to_mono` of float32[n, channels] returns it.

    Raises:
        AudioError: a sample is not plausible; the frames before it are yielded first.
    """
    try:
        check_plausible(frames)
    except AudioError:
        good = count_plausible(frames)
        if good:
            yield to_mono(frames[:good], block)
        raise
    if len(frames):
        yield to_mono(frames, block)
