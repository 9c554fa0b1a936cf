"""Synthetic conversations: turns cut from utterances of several readers, with their true turns."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation.utterances import Utterance
from infra.teaching.operating_points import Doubles
from streams.models.protocol import Floats
from streams.voice.activity import SileroDetector
from streams.voice.diarization import DiarizationTurn
from streams.voice.speech_segments import RATE, SpeechSegment

#: Readers with less speech are skipped, because no part of an utterance is used twice.
SHORTEST_S: Final = 10.0
SPEAKERS: Final = (2, 3, 4)
TURNS: Final = 10
TURN_S: Final = (2.0, 6.0)
PAUSE_S: Final = (0.1, 0.9)
#: One turn in ten begins this long before the previous one ends.
OVERLAPPING: Final = 0.1
OVERLAP_S: Final = (0.2, 0.6)
LEVEL_DB: Final = (-34.0, -20.0)
#: Noise of every other conversation, in dB below its mean level.
NOISE_DB: Final = (20.0, 35.0)
FADE_S: Final = 0.01


class Conversation(msgspec.Struct, frozen=True):
    """A conversation at 16 kHz, float32[n], and its turns."""

    samples: Floats
    turns: tuple[DiarizationTurn, ...]


def make_conversations(
    utterances: Sequence[Utterance],
    activity: SileroDetector,
    count: int,
    seed: int = 0,
    overlapping: float = OVERLAPPING,
    overlap_s: tuple[float, float] = OVERLAP_S,
) -> Iterator[Conversation]:
    """Yield `count` conversations of 2, 3 and 4 speakers in rotation; equal arguments give equal conversations.

    Turns are the speech that voice activity detection finds in the clean utterances. `overlapping` is the share of
    turns that begin before the previous one ends, `overlap_s` how early.

    Raises:
        ValueError: Fewer than four speakers have enough speech.
    """
    readers = _readers(utterances)
    segments: dict[int, list[SpeechSegment]] = {}
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        chosen = rng.choice(len(readers), SPEAKERS[number % len(SPEAKERS)], replace=False).tolist()
        for index in set(chosen) - segments.keys():
            segments[index] = list(activity.segments([readers[index]]))
        voices = [_scale_to_level(readers[index], rng.uniform(*LEVEL_DB)) for index in chosen]
        noisy = number // len(SPEAKERS) % 2 == 1
        voice_segments = [segments[index] for index in chosen]
        yield _conversation(voices, voice_segments, rng, overlapping, overlap_s, noisy=noisy)


def _readers(utterances: Sequence[Utterance]) -> list[Floats]:
    """Return the speech of each speaker with at least SHORTEST_S of it, float32[n], in order of first appearance."""
    voices: dict[str, Floats] = {}
    for utterance in utterances:
        before = voices.get(utterance.speaker, np.empty(0, np.float32))
        voices[utterance.speaker] = np.concatenate((before, utterance.samples))
    enough = [samples for samples in voices.values() if len(samples) >= SHORTEST_S * RATE]
    if len(enough) < max(SPEAKERS):
        raise ValueError(f"{len(enough)} speakers with {SHORTEST_S:g} s or more, expected {max(SPEAKERS)}")
    return enough


def _conversation(
    voices: Sequence[Doubles],
    segments: Sequence[Sequence[SpeechSegment]],
    rng: np.random.Generator,
    overlapping: float,
    overlap_s: tuple[float, float],
    *,
    noisy: bool,
) -> Conversation:
    used = np.zeros(len(voices))
    pieces, turns = [], []
    at, speaker = rng.uniform(*PAUSE_S), -1
    for _ in range(TURNS):
        # Readers with more remaining speech are more likely to get the next turn, so that no reader runs out early.
        remaining = np.array([len(voice) / RATE for voice in voices]) - used
        remaining[remaining < TURN_S[0]] = 0.0
        if speaker >= 0:
            remaining[speaker] = 0.0
        if not remaining.any():
            break
        speaker = int(rng.choice(len(voices), p=remaining / remaining.sum()))
        length = min(rng.uniform(*TURN_S), remaining[speaker])
        first = used[speaker]
        used[speaker] += length
        piece = voices[speaker][round(first * RATE) : round((first + length) * RATE)]
        pieces.append((round(at * RATE), _fade_ends(piece)))
        for segment in segments[speaker]:
            begin, end = max(segment.start_s, first), min(segment.end_s, first + length)
            if begin < end:
                turns.append(DiarizationTurn(begin - first + at, end - first + at, speaker))
        overlap = rng.uniform() < overlapping
        at += length + (-rng.uniform(*overlap_s) if overlap else rng.uniform(*PAUSE_S))
    samples = np.zeros(max(start + len(piece) for start, piece in pieces) + RATE // 2)
    for start, piece in pieces:
        samples[start : start + len(piece)] += piece
    if noisy:
        samples += _scale_to_level(_pink(len(samples), rng), _level(samples) - rng.uniform(*NOISE_DB))
    return Conversation(samples.astype(np.float32), tuple(sorted(turns, key=lambda turn: turn.start_s)))


def _level(samples: Floats | Doubles) -> float:
    """Return the root mean square in decibels of full scale."""
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64)) + 1e-12))


def _scale_to_level(samples: Floats | Doubles, level: float) -> Doubles:
    """Return samples scaled to a root mean square of `level` decibels of full scale."""
    return samples.astype(np.float64) * 10 ** ((level - _level(samples)) / 20)


def _fade_ends(samples: Doubles) -> Doubles:
    """Return samples with short fades at both ends, because a cut through a vowel clicks."""
    ramp = np.minimum(1.0, np.arange(len(samples)) / (FADE_S * RATE))
    return samples * ramp * ramp[::-1]


def _pink(length: int, rng: np.random.Generator) -> Doubles:
    """Return noise of equal power in each octave, as most rooms have."""
    spectrum = np.fft.rfft(rng.normal(size=length))
    return np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(len(spectrum)))), length)
