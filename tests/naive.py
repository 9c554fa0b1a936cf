"""Slow reference implementations, written from the definitions, which kernels and packers must equal."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streams.audio.filters import BETA, CUTOFF, ZEROS
from streams.models.manifest import LogMel
from topics.geometry import Geometry
from topics.jobs.options import Service
from topics.jobs.records import Billed, Finished, JobResult, Portion, Started, Stopped

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]


def resample(inputs: Floats, rate_in: int, rate_out: int, outputs: npt.NDArray[np.intp]) -> Doubles:
    """Return the named outputs, each as one sum over a filter made for its exact position, in doubles."""
    scale = max(1.0, rate_in / rate_out)
    radius = math.ceil(ZEROS * scale)
    values = []
    for output in outputs:
        t = Fraction(int(output) * rate_in, rate_out)
        places = math.floor(t) + np.arange(-radius + 1, radius + 1)
        distance = places - float(t)
        weights = np.sinc(distance * CUTOFF / scale) * np.i0(BETA * np.sqrt(1 - np.minimum(1, distance / radius) ** 2))
        inside = (places >= 0) & (places < len(inputs))
        values.append(float(weights[inside] @ inputs[places[inside]].astype(np.float64) / weights.sum()))
    return np.array(values)


def log_mel(front: LogMel, samples: Floats) -> Doubles:
    """Return every frame that lies wholly in `samples`, by a plain DFT, in doubles."""
    bins = np.arange(front.fft // 2 + 1)
    wave = samples.astype(np.float64)
    if front.pre_emphasis:
        wave = wave[1:] - front.pre_emphasis * wave[:-1]
    turns = np.arange(front.window) / (front.window - (front.taper == "hann-symmetric"))
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * turns)
    dft = np.exp(-2j * np.pi * np.outer(np.arange(front.window), bins) / front.fft)
    starts = range(0, len(wave) - front.window + 1, front.hop)
    frames = [wave[start : start + front.window] * hann for start in starts]
    bands = np.abs(np.array(frames) @ dft) ** front.power @ mel(front).T
    guarded = bands + front.offset if front.guard == "sum" else np.maximum(bands, front.offset)
    logs: Doubles = np.log(guarded) if front.log == "ln" else 10 * np.log10(guarded)
    return (logs - front.mean) / front.std


def mels(hertz: float, slaney: bool) -> float:
    """Convert Hz to mels on Slaney's or HTK's scale."""
    if not slaney:
        return 2595 * math.log10(1 + hertz / 700)
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000, 6.4)


def hertz(mel: float, slaney: bool) -> float:
    """Convert mels to Hz."""
    if not slaney:
        return 700 * (10 ** (mel / 2595) - 1)
    return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


def mel(front: LogMel) -> Doubles:
    """Return the bands' triangles, one weight at a time."""
    slaney = front.mel_scale == "slaney"
    lowest = mels(front.low_hz, slaney)
    step = (mels(front.high_hz, slaney) - lowest) / (front.bands + 1)
    matrix = np.zeros((front.bands, front.fft // 2 + 1))
    for band in range(front.bands):
        edges = [lowest + (band + edge) * step for edge in range(3)]
        low, centre, high = (hertz(edge, slaney) for edge in edges)
        area = (high - low) / 2 if front.mel_norm == "area" else 1
        for number in range(1, front.fft // 2 + 1):
            at = number * front.sample_rate / front.fft
            if front.mel_slopes == "hertz":
                up, down = (at - low) / (centre - low), (high - at) / (high - centre)
            else:
                up, down = (mels(at, slaney) - edges[0]) / step, (edges[2] - mels(at, slaney)) / step
            matrix[band, number] = max(0.0, min(up, down)) / area
    return matrix


def window_count(geometry: Geometry, length: int, rate: int) -> int:
    """Return the windows of `length` samples, by trying one window after another."""
    count = 1 if length else 0
    while count and (length - ((count - 1) * geometry.hop_ms + geometry.window_ms) * rate // 1000) >= rate * 25 // 1000:
        count += 1
    return count


def windows(
    geometry: Geometry, samples: Floats, rate: int, patch_samples: int, score: Callable[[Floats], Floats]
) -> Iterator[Floats]:
    """Yield scores of all windows of a recording at the model's rate; `score` takes the samples of one patch."""
    for window in range(window_count(geometry, len(samples), rate)):
        scores = []
        for second in range(geometry.window_ms // 1000):
            start = (window * geometry.hop_ms + second * 1000) * rate // 1000
            if second == 0 or len(samples) - start >= rate * 25 // 1000:
                piece = samples[start : start + patch_samples]
                scores.append(score(np.pad(piece, (0, patch_samples - len(piece)))))
        yield np.mean(scores, axis=0, dtype=np.float32)


def stored(score: float, point: float) -> int:
    """Return the stored byte of one score, by the formula of `topics.scores`."""
    inside = min(max(score, 1e-12), 1 - 1e-12)
    margin = math.log(inside / (1 - inside)) - math.log(point / (1 - point))
    step = 128 + math.floor(margin / 0.07)
    step = max(step, 128) if score >= point else min(step, 127)
    return min(max(step, 0), 255)


def integer_sample(data: bytes, sample_format: str) -> float:
    """Return one integer sample as a float between -1 and 1."""
    half: int = 2 ** (len(data) * 8 - 1)
    value = int.from_bytes(data[::-1] if sample_format.endswith("le") else data, "big")
    if sample_format.startswith("u"):
        return (value - half) / half
    return (value - 2 * half if value >= half else value) / half


def job_entry(results: Sequence[JobResult], service: Service) -> tuple[list[bytes], Finished | None]:
    """Return the portions of a service and its end, by searching the whole log for the newest run that ended."""
    mine = [result for result in results if not isinstance(result, Billed | Stopped) and result.service is service]
    for at, result in enumerate(mine):
        if isinstance(result, Finished) and result.run == _newest(mine[:at]):
            return _portions(mine[:at], result.run), result
    return _portions(mine, _newest(mine)), None


def _newest(results: Sequence[Started | Stopped | Portion | Finished]) -> str | None:
    return next((result.run for result in reversed(results) if isinstance(result, Started)), None)


def _portions(results: Sequence[Started | Stopped | Portion | Finished], run: str | None) -> list[bytes]:
    by_number = {result.number: result.data for result in results if isinstance(result, Portion) and result.run == run}
    return [data for _, data in sorted(by_number.items())]
