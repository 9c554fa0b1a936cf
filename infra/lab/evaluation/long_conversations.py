"""Synthetic conversations of several minutes; each turn of a reader sounds slightly different.

There is one utterance per reader, so turns are parts of it that may overlap. The variation of a real voice is
simulated: each turn is up to `SPEED_PERCENT` faster or slower, which moves pitch and formants, `TURN_DB` (one sigma)
louder or softer, and filtered by a curve of `CURVE_DB` (one sigma), like a turning head. In every other conversation
each speaker has a place in a room, with noise. Unlike in real talk, words recur and moods do not change.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from infra.lab.evaluation.channels import in_room
from infra.lab.evaluation.conversations import (
    LEVEL_DB,
    OVERLAP_S,
    OVERLAPPING,
    PAUSE_S,
    Conversation,
    Doubles,
    fade_ends,
    finish_conversation,
    scale_to_level,
    select_readers,
)
from infra.lab.evaluation.utterances import Utterance, at_speed
from streams.voice.activity import SileroDetector
from streams.voice.diarization import DiarizationTurn
from streams.voice.speech_segments import RATE, SpeechSegment

#: Lengths of turns, log-uniform: as many between 1 and 3 s as between 3 and 9 s.
TURN_S: Final = (1.0, 9.0)
SPEED_PERCENT: Final = 1
TURN_DB: Final = 2.0
CURVE_DB: Final = 1.5
#: Points of the curve, equally spaced in octaves from 50 Hz on.
CURVE_POINTS: Final = 6
#: Dirichlet's parameter for the shares of speakers: at 2, the most talkative of four says about five times as much as
#: the most silent.
SHARES: Final = 2.0


class LongConversationMaker:
    """Makes long conversations of a group of readers."""

    def __init__(self, utterances: Sequence[Utterance], activity: SileroDetector) -> None:
        """Keep the readers with at least `conversations.SHORTEST_S` of speech.

        Raises:
            ValueError: There is none.
        """
        self._voices = [samples.astype(np.float64) for samples in select_readers(utterances, 1)]
        self._activity = activity
        self._speech: dict[int, list[SpeechSegment]] = {}

    def make(self, minutes: float, speakers: int, number: int, seed: int = 0) -> Conversation:
        """Return a conversation of `speakers` readers; odd numbers are held in a room with noise.

        Equal arguments give equal conversations.

        Raises:
            ValueError: Fewer readers than `speakers` have enough speech.
        """
        if speakers > len(self._voices):
            raise ValueError(f"{len(self._voices)} speakers have said enough, expected {speakers}")
        rng = np.random.default_rng((seed, number, speakers, round(60 * minutes)))
        chosen = rng.choice(len(self._voices), speakers, replace=False).tolist()
        for index in set(chosen) - self._speech.keys():
            self._speech[index] = list(self._activity.segments([self._voices[index].astype(np.float32)]))
        noisy = number % 2 == 1
        voices = [_placed(self._voices[index], rng, noisy=noisy) for index in chosen]
        return _conversation(voices, [self._speech[index] for index in chosen], 60 * minutes, rng, noisy=noisy)


def _placed(voice: Doubles, rng: np.random.Generator, *, noisy: bool) -> Doubles:
    return scale_to_level(in_room(voice, RATE, rng) if noisy else voice, rng.uniform(*LEVEL_DB))


def _conversation(
    voices: Sequence[Doubles],
    segments: Sequence[Sequence[SpeechSegment]],
    seconds: float,
    rng: np.random.Generator,
    *,
    noisy: bool,
) -> Conversation:
    shares = rng.dirichlet([SHARES] * len(voices))
    samples = np.zeros(round((seconds + TURN_S[1] + 1.0) * RATE))
    spans: list[DiarizationTurn] = []
    turns: list[DiarizationTurn] = []
    at = rng.uniform(*PAUSE_S)
    while at < seconds:
        speaker = _next_speaker(shares, spans, rng)
        length = min(float(np.exp(rng.uniform(*np.log(TURN_S)))), len(voices[speaker]) / RATE)
        first = rng.uniform(0.0, len(voices[speaker]) / RATE - length)
        percent = int(rng.integers(100 - SPEED_PERCENT, 101 + SPEED_PERCENT))
        piece = _vary(voices[speaker][round(first * RATE) : round((first + length) * RATE)], percent, rng)
        start = round(at * RATE)
        samples[start : start + len(piece)] += piece
        spans.append(DiarizationTurn(at, at + len(piece) / RATE, speaker))
        for segment in segments[speaker]:
            begin, end = max(segment.start_s, first) - first, min(segment.end_s, first + length) - first
            if begin < end:
                turns.append(DiarizationTurn(at + begin * 100 / percent, at + end * 100 / percent, speaker))
        overlap = rng.uniform() < OVERLAPPING and len(voices) > 1
        at += len(piece) / RATE + (-rng.uniform(*OVERLAP_S) if overlap else rng.uniform(*PAUSE_S))
    samples = samples[: round((spans[-1].end_s + 0.5) * RATE)]
    return finish_conversation(samples, turns, spans, rng, noisy=noisy)


def _next_speaker(shares: Doubles, spans: Sequence[DiarizationTurn], rng: np.random.Generator) -> int:
    """Return the next speaker: first everyone once in order, then at random by share, never the previous one."""
    if len(spans) < len(shares):
        return len(spans)
    others = shares.copy()
    if len(shares) > 1:
        others[spans[-1].speaker] = 0.0
    return int(rng.choice(len(shares), p=others / others.sum()))


def _vary(piece: Doubles, percent: int, rng: np.random.Generator) -> Doubles:
    moved = at_speed(piece.astype(np.float32), percent).astype(np.float64)
    octaves = np.log2(np.maximum(np.fft.rfftfreq(len(moved), 1.0 / RATE), 50.0) / 50.0)
    points = np.linspace(0.0, octaves[-1], CURVE_POINTS)
    decibels = (
        np.interp(octaves, points, CURVE_DB * rng.standard_normal(CURVE_POINTS)) + TURN_DB * rng.standard_normal()
    )
    return fade_ends(np.fft.irfft(np.fft.rfft(moved) * 10.0 ** (decibels / 20.0), len(moved)))
