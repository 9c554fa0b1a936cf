"""Pictures of recordings whose look is known."""

from __future__ import annotations

import numpy as np
import pytest

from streams.audio import picture
from streams.audio.logmel import mel_matrix
from streams.audio.picture import BANDS, COLUMN_BYTES, FRONT, HOP, RATE, STEP, Bytes, PictureWriter
from streams.models.protocol import Floats
from tests.audio import noise, sine


def drawn(samples: Floats, rate: int = RATE, cut: int = 10_000) -> Bytes:
    writer = PictureWriter(rate)
    data = b"".join(writer.feed(samples[at : at + cut]) for at in range(0, len(samples), cut)) + writer.finish()
    assert writer.seconds == pytest.approx(len(samples) / rate, abs=1e-3)
    columns = np.frombuffer(data, np.uint8).reshape(-1, COLUMN_BYTES)
    assert len(columns) == -(-round(writer.seconds * RATE) // HOP)
    return columns


def image(columns: Bytes, start: float, end: float, width: int) -> Bytes:
    data = picture.spectrogram(columns, start, end, width)
    return np.frombuffer(data, np.uint8).reshape(BANDS, width)


def test_every_band_hears_something() -> None:
    assert (mel_matrix(FRONT).sum(axis=1) > 0).all()
    assert (drawn(noise(RATE))[5:-5, :BANDS] > 0).all()


@pytest.mark.parametrize("hertz", [200.0, 1000.0, 6000.0])
def test_a_tone_of_full_scale_is_white_in_its_band(hertz: float) -> None:
    rows = image(drawn(sine(2.0, hertz)), 0.5, 1.5, 10)
    loudest = rows.argmax(axis=0)
    assert (rows.max(axis=0) >= 250).all()
    assert len(set(loudest)) == 1
    centres = np.argmax(mel_matrix(FRONT)[:, round(hertz * FRONT.fft / RATE)])
    assert BANDS - 1 - loudest[0] == pytest.approx(centres, abs=1)


def test_softer_is_darker_and_silence_black() -> None:
    loud, soft = (image(drawn(sine(1.0) * np.float32(level)), 0.2, 0.8, 4).max() for level in (0.5, 0.005))
    assert int(loud) - int(soft) == pytest.approx(40 * 255 / 100, abs=2)
    assert not drawn(np.zeros(RATE, np.float32)).any()


def test_how_blocks_are_cut_changes_nothing() -> None:
    samples = noise(3 * 44_100)
    assert np.array_equal(drawn(samples, 44_100, 311), drawn(samples, 44_100, 7919))


def test_an_instant_is_in_its_column_and_its_step() -> None:
    samples = np.zeros(RATE, np.float32)
    samples[10 * HOP + STEP + 3], samples[20 * HOP] = 0.5, -1.0
    columns = drawn(samples)
    assert set(np.flatnonzero(columns[:, BANDS:].any(axis=1))) == {10, 20}
    peaks = picture.waveform(columns, 0, 10_000, 1).reshape(-1, 2)
    assert len(peaks) == RATE // STEP
    assert peaks[41].tolist() == [0, 64]
    assert peaks[80].tolist() == [-127, 0]


@pytest.mark.parametrize(("first", "count", "steps"), [(0, 10, 7), (3, 5, 2), (199, 50, 3), (0, 1, 200), (5, 3, 4)])
def test_peaks_of_a_stretch(first: int, count: int, steps: int) -> None:
    columns = drawn(noise(RATE))
    every = picture.waveform(columns, 0, 10_000, 1).reshape(-1, 2)[first : first + count * steps]
    expected = [(part[:, 0].min(), part[:, 1].max()) for part in np.split(every, range(steps, len(every), steps))]
    assert picture.waveform(columns, first, count, steps).reshape(-1, 2).tolist() == [list(pair) for pair in expected]


def test_the_loudest_of_what_a_pixel_covers_is_seen() -> None:
    columns = drawn(noise(10 * RATE))
    rows = image(columns, 2.0, 6.0, 8)
    for number in range(8):
        first = 100 + 25 * number
        assert np.array_equal(rows[::-1, number], columns[first : first + 25, :BANDS].max(axis=0))


def test_nearer_than_a_column_it_is_that_column() -> None:
    columns = drawn(noise(RATE))
    assert np.array_equal(image(columns, 0.5, 0.52, 5)[::-1].T, np.repeat(columns[25:26, :BANDS], 5, axis=0))


def test_after_the_end_there_is_nothing() -> None:
    columns = drawn(noise(RATE))
    rows = image(columns, 0.0, 4.0, 4)
    assert rows[:, 0].any()
    assert not rows[:, 1:].any()
    assert not image(columns, 50.0, 60.0, 3).any()
    assert len(picture.waveform(columns, 200, 5, 5)) == 0


def test_samples_beyond_full_scale_are_clipped() -> None:
    columns = drawn(sine(1.0) * np.float32(5))
    peaks = picture.waveform(columns, 0, 1, 200)
    assert peaks.tolist() == [-127, 127]
    assert columns[:, :BANDS].max() == 255


@pytest.mark.parametrize("count", [1, HOP - 1, HOP, HOP + 1])
def test_the_shortest_recordings(count: int) -> None:
    assert len(drawn(noise(count))) == -(-count // HOP)
