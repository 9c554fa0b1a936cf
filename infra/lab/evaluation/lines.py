"""Simulated channels between mouth and file; the model card has a figure for each."""

import io
from collections.abc import Mapping
from typing import Final

import numpy as np
import soundfile

from infra.lab.evaluation.channels import Channel, small_room
from infra.lab.evaluation.utterances import SAMPLE_RATE
from streams.audio.resample import resample
from streams.models.protocol import Floats

TELEPHONE_RATE: Final = 8000
#: Telephone codecs that voices are evaluated with, and those that the narrow-band directions are learnt with.
JUDGED_CODECS: Final = ("ALAW", "GSM610")
LEARNT_CODECS: Final = ("PCM_16", "ULAW", "IMA_ADPCM", "G721_32")
QUIET_DB: Final = 20.0
QUIET_SNR_DB: Final = 15.0
#: A compression level of libsndfile, 0..1; at a constant rate this makes 64 kbit/s of 16 kHz mono.
MP3_LEVEL: Final = 0.6


def quiet(samples: Floats, rng: np.random.Generator) -> Floats:
    """Return float32[n] 20 dB softer, with white noise 15 dB below, rounded to 16 bits."""
    soft = samples * np.float32(10.0 ** (-QUIET_DB / 20.0))
    noise = rng.standard_normal(len(samples)) * float(np.sqrt(np.mean(soft.astype(np.float64) ** 2)))
    noisy = soft + noise * 10.0 ** (-QUIET_SNR_DB / 20.0)
    rounded: Floats = (np.round(noisy * 32768.0) / 32768.0).astype(np.float32)
    return rounded


def telephone(samples: Floats, rng: np.random.Generator, codecs: tuple[str, ...] = JUDGED_CODECS) -> Floats:
    """Return float32[n] at 16 kHz through a telephone: 8 kHz, a random pass band, and one of some codecs.

    In three of four cases the band begins at 200..400 Hz and ends at 3200..3700 Hz, falling by 24 dB an octave below
    and 96 above; else it is all that 8 kHz can hold.
    """
    narrow = resample(samples, SAMPLE_RATE, TELEPHONE_RATE)
    if rng.random() < 0.75:
        hertz = np.maximum(np.fft.rfftfreq(len(narrow), 1.0 / TELEPHONE_RATE), 20.0)
        low, high = rng.uniform(200.0, 400.0), rng.uniform(3200.0, 3700.0)
        decibels = 24.0 * np.minimum(0.0, np.log2(hertz / low)) - 96.0 * np.maximum(0.0, np.log2(hertz / high))
        narrow = np.fft.irfft(np.fft.rfft(narrow) * 10.0 ** (decibels / 20.0), len(narrow)).astype(np.float32)
    coded = _through_file(narrow, TELEPHONE_RATE, "WAV", codecs[int(rng.integers(len(codecs)))])
    wide = np.zeros_like(samples)
    heard = resample(coded, TELEPHONE_RATE, SAMPLE_RATE)[: len(wide)]
    wide[: len(heard)] = heard
    return wide


def mp3(samples: Floats, rng: np.random.Generator) -> Floats:
    """Return float32[n] at 16 kHz through MP3 of 64 kbit/s at most."""
    return _through_file(samples, SAMPLE_RATE, "MP3", "MPEG_LAYER_III")[: len(samples)]


def room_telephone(samples: Floats, rng: np.random.Generator) -> Floats:
    """Return float32[n] at 16 kHz through a random room and a telephone in it."""
    return telephone(small_room(samples, rng), rng)


CHANNELS: Final[Mapping[str, Channel]] = {
    "room": small_room,
    "quiet": quiet,
    "mp3": mp3,
    "telephone": telephone,
    "room_telephone": room_telephone,
}


def _through_file(samples: Floats, rate: int, container: str, codec: str) -> Floats:
    peak = max(1.0, float(np.abs(samples).max(initial=0.0)) / 0.99)
    options = {"bitrate_mode": "CONSTANT", "compression_level": MP3_LEVEL} if container == "MP3" else {}
    file = io.BytesIO()
    soundfile.write(file, samples / peak, rate, codec, format=container, **options)
    file.seek(0)
    read, _ = soundfile.read(file, dtype="float32")
    coded: Floats = (read * np.float32(peak)).astype(np.float32)
    return coded
