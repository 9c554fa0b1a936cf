"""Long everyday scenes made of labelled clips: a steady background, events, some speech, and quiet.

A clip of five seconds ends with its sound. A microphone in a house records minutes in which little happens, and there a
false tag in one window of a hundred is a nuisance. So each scene has three minutes of faint background with a few
events, some speech, and a part with only noise and mains hum.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation.recordings import Recording, Span
from streams.audio.decode import DecodedAudio
from streams.models.protocol import Floats
from topics.errors import BadRequest

SEED: Final = 2026
RATE: Final = 16_000
#: Length of a scene, and of each of its parts.
SECONDS: Final = 180
PART: Final = 30
#: Levels of background and events: mean power of their loud part, dB of full scale.
BACKGROUND_DB: Final = (-45.0, -28.0)
EVENT_DB: Final = (-32.0, -16.0)


class Setting(msgspec.Struct, frozen=True):
    """A place: the labels of its background and events."""

    name: str
    background: tuple[str, ...]
    events: tuple[str, ...]


def _setting(name: str, background: str, events: str) -> Setting:
    return Setting(name, tuple(background.split()), tuple(events.split()))


SETTINGS: Final = (
    _setting("kitchen", "washing_machine water_drops", "pouring_water can_opening glass_breaking drinking_sipping"),
    _setting("living room", "clock_tick crackling_fire", "laughing coughing cat sneezing door_wood_creaks"),
    _setting("office", "keyboard_typing mouse_click", "door_wood_knock footsteps coughing drinking_sipping"),
    _setting("bedroom", "snoring breathing clock_tick", "clock_alarm crying_baby door_wood_creaks"),
    _setting("bathroom", "brushing_teeth water_drops", "toilet_flush pouring_water sneezing"),
    _setting("street", "engine wind train", "car_horn siren footsteps dog"),
    _setting("garden", "chirping_birds wind insects", "dog crow hand_saw chainsaw footsteps"),
    _setting("farm", "wind insects chirping_birds", "rooster hen cow sheep pig dog"),
    _setting("shore", "sea_waves wind", "dog laughing footsteps"),
    _setting("rain", "rain thunderstorm", "footsteps car_horn door_wood_knock"),
    _setting("night", "crickets wind", "frog dog cat helicopter"),
    _setting("housework", "vacuum_cleaner washing_machine", "door_wood_knock cat glass_breaking"),
)


def build_scenes(sounds: Sequence[Recording], speech: Sequence[Recording]) -> list[Recording]:
    """Return a scene per setting, from clips of `sounds` and utterances of `speech`; repeatable."""
    return [_scene(setting, sounds, speech, np.random.default_rng((SEED, n))) for n, setting in enumerate(SETTINGS)]


def _scene(
    setting: Setting, sounds: Sequence[Recording], speech: Sequence[Recording], random: np.random.Generator
) -> Recording:
    samples = np.zeros(SECONDS * RATE, np.float32)
    spans: list[Span] = []
    # The second-to-last part is speech over the background; the last has no background, only noise, then hum.
    background = _add_background(setting.background, sounds, random, spans)
    samples[: len(background)] += background
    for part in range(SECONDS // PART - 2):
        clip = _pick(setting.events, sounds, random)
        _add(samples, clip, part * PART + random.uniform(5.0, PART - 10.0), random.uniform(*EVENT_DB), spans)
    talk = speech[int(random.integers(len(speech)))]
    _add(samples, talk, SECONDS - 2 * PART + 2.0, random.uniform(*EVENT_DB), spans)
    samples += _noise(random, len(samples))
    samples[-RATE * PART // 2 :] += _hum(RATE * PART // 2)
    return Recording(
        name=setting.name,
        label=setting.name,
        spans=tuple(spans),
        audio=DecodedAudio(RATE, samples),
        source=setting.name,
    )


def _add_background(
    labels: Sequence[str], sounds: Sequence[Recording], random: np.random.Generator, spans: list[Span]
) -> Floats:
    """Return the background, its clips cross-faded over a second, and append their spans to `spans`."""
    length = (SECONDS - PART) * RATE
    samples = np.zeros(length, np.float32)
    level = random.uniform(*BACKGROUND_DB)
    fade = np.minimum(1.0, np.minimum(np.arange(5 * RATE), np.arange(5 * RATE)[::-1]) / RATE).astype(np.float32)
    for start in range(0, length - 5 * RATE, 4 * RATE):
        clip = _pick(labels, sounds, random)
        piece = np.resize(_at_level(clip, level), 5 * RATE)
        samples[start : start + 5 * RATE] += piece * fade
        spans.append(Span(clip.spans[0].meaning, start / RATE, start / RATE + 5.0))
    return samples


def _add(samples: Floats, clip: Recording, start: float, level: float, spans: list[Span]) -> None:
    piece = _at_level(clip, level)
    first = int(start * RATE)
    piece = piece[: len(samples) - first]
    samples[first : first + len(piece)] += piece
    spans.append(Span(clip.spans[0].meaning, start, start + len(piece) / RATE))


def _pick(labels: Sequence[str], sounds: Sequence[Recording], random: np.random.Generator) -> Recording:
    present = [label for label in labels if any(clip.label == label for clip in sounds)]
    if not present:
        raise BadRequest(f"scenes need a clip of {' or '.join(labels)}")
    label = present[int(random.integers(len(present)))]
    clips = [clip for clip in sounds if clip.label == label]
    return clips[int(random.integers(len(clips)))]


def _at_level(clip: Recording, level: float) -> Floats:
    """Return a clip whose loudest half has this mean power in dB of full scale."""
    samples = clip.decode().samples
    frames = np.square(samples[: len(samples) // 400 * 400].reshape(-1, 400)).mean(axis=1)
    loud = float(np.sort(frames)[len(frames) // 2 :].mean())
    return samples * np.float32(np.sqrt(10.0 ** (level / 10.0) / max(loud, 1e-10)))


def _noise(random: np.random.Generator, length: int) -> Floats:
    """Return the noise of a quiet microphone, -70 dB of full scale."""
    noise: Floats = (random.standard_normal(length) * 10.0**-3.5).astype(np.float32)
    return noise


def _hum(length: int) -> Floats:
    """Return mains hum of 50 Hz with its harmonics, -45 dB of full scale."""
    phase = 2.0 * np.pi * 50.0 * np.arange(length) / RATE
    harmonics = [np.sin(n * phase) / n for n in (1, 2, 3, 5)]
    hum: Floats = (0.007 * np.sum(harmonics, axis=0)).astype(np.float32)
    return hum
