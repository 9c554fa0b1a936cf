"""A picture of a recording: its loudness by frequency and the swing of its samples, in columns of 20 ms.

The bytes are consecutive columns, uint8[columns, `COLUMN_BYTES`]: first the bands from the lowest up, each from 0
(`FLOOR_DB` or less) to 255 (0 dB full scale); then the least and the greatest sample of each `STEP`, as int8.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from streams.audio.logmel import append_log_mel_frames
from streams.audio.resample import Resampler
from streams.models.manifest import LogMel
from streams.models.protocol import Floats

Bytes = npt.NDArray[np.uint8]

RATE: Final = 16_000
HOP: Final = 320
BANDS: Final = 64
#: Samples between two peaks.
STEP: Final = 80
_STEPS: Final = HOP // STEP
COLUMN_BYTES: Final = BANDS + 2 * _STEPS
FLOOR_DB: Final = -100.0
_WINDOW: Final = 640
#: Power in dB of a full-scale sine under the Hann window.
_FULL_DB: Final = 20 * math.log10(_WINDOW / 4)
#: A frame is centred on its column.
_LEAD: Final = (_WINDOW - HOP) // 2
FRONT: Final = LogMel(
    sample_rate=RATE,
    frames=1,
    bands=BANDS,
    window=_WINDOW,
    hop=HOP,
    fft=1024,
    low_hz=40.0,
    high_hz=RATE / 2,
    offset=1e-6,
    power=2,
    log="dB",
    mean=_FULL_DB + FLOOR_DB,
    std=-FLOOR_DB / 255,
)


class PictureWriter:
    """Turns a recording, fed block by block, into columns. One thread at a time."""

    def __init__(self, rate: int) -> None:
        #: Samples at `RATE` so far.
        self.samples = 0
        self._resampler = Resampler(rate, RATE)
        self._columns = 0
        #: Samples from the first incomplete frame on, and from the first incomplete column on.
        self._frame = np.zeros(_LEAD, np.float32)
        self._column = np.empty(0, np.float32)

    @property
    def seconds(self) -> float:
        return self.samples / RATE

    def feed(self, block: Floats) -> bytes:
        """Take the next samples, float32[n], and return the columns they complete."""
        return self._feed(self._resampler.feed(block))

    def finish(self) -> bytes:
        """Return the remaining columns, with silence after the end."""
        last = self._resampler.finish()
        missing = -(self.samples + len(last)) % HOP
        columns = self._feed(np.concatenate((last, np.zeros(missing + _WINDOW - HOP - _LEAD, np.float32))))
        self.samples -= missing + _WINDOW - HOP - _LEAD
        return columns

    def _feed(self, samples: Floats) -> bytes:
        self.samples += len(samples)
        frames, self._frame = append_log_mel_frames(FRONT, np.empty((0, BANDS), np.float32), self._frame, samples)
        # Frames reach further than columns, so the samples of each frame's column have arrived.
        joined, end = np.concatenate((self._column, samples)), len(frames) * HOP
        self._column = joined[end:].copy()
        columns = np.empty((len(frames), COLUMN_BYTES), np.uint8)
        columns[:, :BANDS] = np.clip(np.rint(frames), 0, 255)
        steps = joined[:end].reshape(len(frames), _STEPS, STEP)
        peaks = np.stack((steps.min(axis=2), steps.max(axis=2)), axis=2).reshape(len(frames), 2 * _STEPS)
        columns[:, BANDS:] = np.clip(np.rint(peaks * 127), -127, 127).astype(np.int8).view(np.uint8)
        return columns.tobytes()


def spectrogram(picture: Bytes, start_s: float, end_s: float, columns: int) -> bytes:
    """Return the maximum of each band in `columns` equal parts of a stretch, as rows, highest frequency first.

    After the recording's end, all is 0.
    """
    edges = np.linspace(start_s, end_s, columns + 1) * (RATE / HOP)
    first = edges[:-1].astype(np.intp)
    first = first[first < len(picture)]
    image = np.zeros((columns, BANDS), np.uint8)
    if len(first):
        # A part shorter than a column takes that column.
        bands = picture[: max(math.ceil(edges[-1]), first[-1] + 1), :BANDS]
        image[: len(first)] = np.maximum.reduceat(bands, first, axis=0)
    return image.T[::-1].tobytes()


def waveform(picture: Bytes, first: int, count: int, steps: int) -> npt.NDArray[np.int8]:
    """Return least and greatest sample of every `steps` steps from step `first`: int8[2 n], n at most `count`."""
    begin = first // _STEPS
    columns = picture[begin : -(-(first + count * steps) // _STEPS), BANDS:]
    peaks = columns.view(np.int8).reshape(-1, 2)[first - begin * _STEPS :][: count * steps]
    if not len(peaks):
        return np.empty(0, np.int8)
    places = np.arange(0, len(peaks), steps)
    least, greatest = np.minimum.reduceat(peaks[:, 0], places), np.maximum.reduceat(peaks[:, 1], places)
    return np.stack((least, greatest), axis=1).reshape(-1)
