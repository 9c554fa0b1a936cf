"""Pictures of recordings, and levels and spectrograms of live audio."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.audio import picture
from streams.audio.levels import KEPT, SoundMeter
from streams.audio.logmel import mel_matrix
from streams.audio.picture import BANDS, COLUMN_BYTES, FRONT, HOP, RATE, STEP, Bytes, PictureWriter
from streams.models.protocol import Floats
from tests.audio import noise, sine
from topics.ports.live import BANDS as LIVE_BANDS
from topics.ports.live import HIGH_HZ, LOW_HZ, SILENCE_DB, WindowSound


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


def test_every_band_responds_to_noise() -> None:
    assert (mel_matrix(FRONT).sum(axis=1) > 0).all()
    assert (drawn(noise(RATE))[5:-5, :BANDS] > 0).all()


@pytest.mark.parametrize("hertz", [200.0, 1000.0, 6000.0])
def test_full_scale_tone_is_white_in_its_band(hertz: float) -> None:
    rows = image(drawn(sine(2.0, hertz)), 0.5, 1.5, 10)
    loudest = rows.argmax(axis=0)
    assert (rows.max(axis=0) >= 250).all()
    assert len(set(loudest)) == 1
    centres = np.argmax(mel_matrix(FRONT)[:, round(hertz * FRONT.fft / RATE)])
    assert BANDS - 1 - loudest[0] == pytest.approx(centres, abs=1)


def test_quieter_is_darker_and_silence_is_black() -> None:
    loud, soft = (image(drawn(sine(1.0) * np.float32(level)), 0.2, 0.8, 4).max() for level in (0.5, 0.005))
    assert int(loud) - int(soft) == pytest.approx(40 * 255 / 100, abs=2)
    assert not drawn(np.zeros(RATE, np.float32)).any()


def test_picture_is_independent_of_cuts() -> None:
    samples = noise(3 * 44_100)
    assert np.array_equal(drawn(samples, 44_100, 311), drawn(samples, 44_100, 7919))


def test_impulse_falls_in_its_column_and_step() -> None:
    samples = np.zeros(RATE, np.float32)
    samples[10 * HOP + STEP + 3], samples[20 * HOP] = 0.5, -1.0
    columns = drawn(samples)
    assert set(np.flatnonzero(columns[:, BANDS:].any(axis=1))) == {10, 20}
    peaks = picture.waveform(columns, 0, 10_000, 1).reshape(-1, 2)
    assert len(peaks) == RATE // STEP
    assert peaks[41].tolist() == [0, 64]
    assert peaks[80].tolist() == [-127, 0]


@pytest.mark.parametrize(("first", "count", "steps"), [(0, 10, 7), (3, 5, 2), (199, 50, 3), (0, 1, 200), (5, 3, 4)])
def test_waveform_range_has_peaks_per_step(first: int, count: int, steps: int) -> None:
    columns = drawn(noise(RATE))
    every = picture.waveform(columns, 0, 10_000, 1).reshape(-1, 2)[first : first + count * steps]
    expected = [(part[:, 0].min(), part[:, 1].max()) for part in np.split(every, range(steps, len(every), steps))]
    assert picture.waveform(columns, first, count, steps).reshape(-1, 2).tolist() == [list(pair) for pair in expected]


def test_pixel_shows_loudest_column_it_covers() -> None:
    columns = drawn(noise(10 * RATE))
    rows = image(columns, 2.0, 6.0, 8)
    for number in range(8):
        first = 100 + 25 * number
        assert np.array_equal(rows[::-1, number], columns[first : first + 25, :BANDS].max(axis=0))
    # Ranges shorter than a column show that column.
    assert np.array_equal(image(columns, 0.5, 0.52, 5)[::-1].T, np.repeat(columns[25:26, :BANDS], 5, axis=0))


def test_picture_is_empty_after_the_end() -> None:
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
def test_shortest_recordings_are_drawn(count: int) -> None:
    drawn(noise(count))


def drawing() -> SoundMeter:
    meter = SoundMeter()
    meter.draws = True
    return meter


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100, 48_000, 192_000])
def test_levels_and_columns_of_full_scale_sine(rate: int) -> None:
    meter = drawing()
    meter.feed(rate, 0, sine(2.0, 1000.0, rate))
    sound = meter.window(1, 2, 1)
    assert sound is not None
    assert sound.rms == pytest.approx(-3.0, abs=0.1)
    assert sound.peak == pytest.approx(0.0, abs=0.2)
    columns = np.frombuffer(sound.columns, np.uint8).reshape(-1, LIVE_BANDS)
    assert len(columns) == 10
    mels = 1127 * np.log1p(np.array([LOW_HZ, 1000.0, min(HIGH_HZ, rate / 2)]) / 700)
    assert columns.argmax(axis=1).tolist() == pytest.approx(
        [(mels[1] - mels[0]) / (mels[2] - mels[0]) * LIVE_BANDS - 0.5] * 10, abs=1.5
    )
    assert columns.max() >= 249, "within 3 dB of full scale"
    assert columns.min() < 120


def test_levels_of_silence_and_half_scale() -> None:
    meter = drawing()
    meter.feed(16_000, 0, np.concatenate((np.zeros(8000, np.float32), np.float32(0.5) * sine(0.5, 500.0))))
    assert meter.window(0, 1, 1) == WindowSound(SILENCE_DB, SILENCE_DB, bytes(10 * LIVE_BANDS))
    loud = meter.window(1, 1, 1)
    assert loud is not None
    assert (loud.rms, loud.peak) == (-9.0, -6.0)


@given(st.lists(st.integers(1, 9000), max_size=12), st.sampled_from([8000, 11_025, 16_000, 22_050]))
@settings(max_examples=50)
def test_live_sound_is_independent_of_cuts(cuts: list[int], rate: int) -> None:
    samples = np.random.default_rng(rate).normal(0, 0.1, 3 * rate).astype(np.float32)
    whole, pieces = drawing(), drawing()
    whole.feed(rate, 0, samples)
    at = 0
    for cut in [*cuts, len(samples)]:
        # A restart repeats earlier audio.
        pieces.feed(rate, max(0, at - 100), samples[max(0, at - 100) : at + cut])
        at = min(len(samples), at + cut)
    for number in range(5):
        one, other = whole.window(number, 2, 1), pieces.window(number, 2, 1)
        assert one is not None
        assert other is not None
        assert one.peak == other.peak
        assert one.rms == pytest.approx(other.rms, abs=0.11)
        columns, others = (np.frombuffer(sound.columns, np.uint8).astype(int) for sound in (one, other))
        assert np.abs(columns - others).max() <= 1


@pytest.mark.parametrize(
    ("fed", "known"),
    [
        pytest.param([(16_000, 20_000, 20_000)], range(3, 5), id="begun in the middle of a segment"),
        pytest.param([(16_000, 0, 8000), (16_000, 16_000, 8000)], range(0, 3, 2), id="with a gap"),
        pytest.param([(16_000, 0, 16_000), (8000, 0, 4000)], range(1), id="of another rate then"),
        pytest.param([(8000, 0, 12_000 * KEPT)], range(2 * KEPT, 3 * KEPT), id="long"),
    ],
)
def test_only_latest_complete_segments_are_known(fed: list[tuple[int, int, int]], known: range) -> None:
    meter = drawing()
    for rate, at, count in fed:
        meter.feed(rate, at, np.ones(count, np.float32))
    assert [number for number in range(3 * KEPT) if meter.window(number, 1, 1) is not None] == list(known)


def test_late_listener_gets_only_later_columns() -> None:
    meter = SoundMeter()
    meter.feed(16_000, 0, np.ones(12_000, np.float32))
    meter.draws = True
    meter.feed(16_000, 12_000, np.ones(12_000, np.float32))
    columns = [sound.columns for number in range(3) if (sound := meter.window(number, 1, 1)) is not None]
    assert [len(one) for one in columns] == [0, 0, 10 * LIVE_BANDS]


def test_low_sample_rate_has_level_but_no_picture() -> None:
    meter = drawing()
    meter.feed(1000, 0, np.ones(1000, np.float32))
    assert meter.window(0, 2, 2) == WindowSound(0.0, 0.0)
