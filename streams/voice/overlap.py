"""Finds where two people speak at once, and who they are.

A speaker-segmentation network computes the probability of two voices for frames of a window. It runs on overlapping
windows, and their probabilities are averaged.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
import numpy as np

from streams.models import runtime
from streams.models.protocol import Floats
from streams.voice import overlap_manifest as manifest
from streams.voice.diarization import DiarizationTurn
from streams.voice.overlap_manifest import FRAME, OverlapManifest
from streams.voice.speech_segments import RATE
from topics.errors import EngineError

#: Length of a frame of the result, in seconds.
FRAME_S: Final = FRAME / RATE
#: Samples per spectrum in the test whether a window is clear.
SPECTRUM: Final = 320
#: A telephone passes less than this share of the power above this frequency.
HIGH_HZ: Final = 4200
LEAST_HIGH: Final = 1e-4
#: Minimum ratio of the loudest parts' power to the softest parts': 25 dB. It is lower in noise.
LEAST_CONTRAST: Final = 10**2.5


class OverlapDetector(Protocol):
    """A loaded network; threads may share it."""

    @property
    def manifest(self) -> OverlapManifest:
        """Its windows and thresholds."""

    def probabilities(self, samples: Floats) -> Floats:
        """Return the probability of two voices in each frame of float32[manifest.input.samples], float32[frames].

        Raises:
            EngineError: the network is missing or damaged, or failed.
        """


class OnnxOverlapDetector:
    """The network as one ONNX graph. Any thread."""

    def __init__(self, directory: Path) -> None:
        """Load the model in `directory`.

        Raises:
            EngineError: manifest or graph are missing or damaged; a message of one line.
        """
        self.manifest: OverlapManifest = manifest.read(directory)
        self._session = runtime.open_session(directory / self.manifest.graph.file, self.manifest.graph.sha256)
        (self._input,) = [item.name for item in self._session.get_inputs()]

    def probabilities(self, samples: Floats) -> Floats:
        try:
            frames: Floats = self._session.run(None, {self._input: samples[np.newaxis]})[0][0]
        except Exception as error:  # onnxruntime's errors have no common base
            raise EngineError(f"{self.manifest.model_id}: {runtime.first_line(error)}") from error
        return frames


class DiarizationOverlap(msgspec.Struct, frozen=True):
    """`other` also speaks from `start_s` to `end_s`, in seconds, during a turn of `speaker`."""

    start_s: float
    end_s: float
    speaker: int
    other: int


def find_overlaps(
    blocks: Iterable[Floats], detector: OverlapDetector, turns: Sequence[DiarizationTurn]
) -> list[DiarizationOverlap]:
    """Return where two speak at once in a recording, in blocks of float32[n] at 16 kHz, in order of time.

    Turns are in order of time and do not overlap; `other` is the speaker of the nearest turn of somebody else. With
    only one speaker, the network does not run. Keeps four bytes per frame: 1.4 MB an hour.

    Raises:
        EngineError: the network failed.
    """
    if len({turn.speaker for turn in turns}) < 2:
        return []
    probabilities = overlap_probabilities(blocks, detector, turns)
    stretches = _stretches(probabilities, detector.manifest)
    return list(_with_speakers(stretches, turns))


def overlap_probabilities(
    blocks: Iterable[Floats], detector: OverlapDetector, turns: Sequence[DiarizationTurn]
) -> Floats:
    """Return the probability that two speak at once, float32[frames], 0 in windows without a turn.

    Windows begin half a window apart. Silence pads the last one.

    Raises:
        EngineError: the network failed.
    """
    manifest = detector.manifest
    half = manifest.input.samples // 2
    centres = np.arange(FRAME // 2, manifest.input.samples, FRAME)
    nearest = np.rint((centres - manifest.first) / manifest.hop).astype(np.intp)
    starts = [turn.start_s * RATE for turn in turns]
    ends = [turn.end_s * RATE for turn in turns]

    def window(samples: Floats, at: int) -> Floats:
        anybody = bisect_right(ends, at) < bisect_left(starts, at + manifest.input.samples)
        if not anybody or not is_clear(samples):
            return np.zeros(len(centres), np.float32)
        frames = detector.probabilities(np.pad(samples, (0, manifest.input.samples - len(samples))))
        window: Floats = frames[nearest.clip(0, len(frames) - 1)]
        return window

    halves: list[Floats] = []

    def join(frames: Floats) -> None:
        first, later = np.split(frames, 2)
        if halves:
            first = (first + halves.pop()) / np.float32(2)
        halves.extend((first, later))

    buffer, at = np.empty(0, np.float32), 0
    for block in blocks:
        buffer = np.concatenate((buffer, block))
        while len(buffer) >= manifest.input.samples:
            join(window(buffer[: manifest.input.samples], at))
            buffer, at = buffer[half:], at + half
    if not halves or len(buffer) > half:
        join(window(buffer, at))
    return np.concatenate(halves)[: -(-(at + len(buffer)) // FRAME)]


def is_clear(samples: Floats) -> bool:
    """Return whether float32[n] at 16 kHz is neither telephone audio nor noisy.

    In such audio, one voice often sounds like two to the network, and most of what it finds would be wrong.
    """
    frames = samples[: len(samples) // SPECTRUM * SPECTRUM].reshape(-1, SPECTRUM) * np.hanning(SPECTRUM)
    if not len(frames):
        return False
    power = np.abs(np.fft.rfft(frames)) ** 2
    high = power[:, HIGH_HZ * SPECTRUM // RATE :].sum()
    soft, loud = np.percentile(power.sum(axis=1), (5, 95))
    return bool(high >= LEAST_HIGH * power.sum() and loud >= LEAST_CONTRAST * soft)


def _stretches(probabilities: Floats, manifest: OverlapManifest) -> Iterator[tuple[float, float]]:
    edges = np.flatnonzero(np.diff(probabilities >= manifest.point, prepend=False, append=False))
    for start, end in edges.reshape(-1, 2).tolist():
        if probabilities[start:end].max() >= manifest.onset:
            yield start * FRAME_S, end * FRAME_S


def _with_speakers(
    stretches: Iterable[tuple[float, float]], turns: Sequence[DiarizationTurn]
) -> Iterator[DiarizationOverlap]:
    """Yield the part of each stretch that lies in each turn."""
    starts, ends = [turn.start_s for turn in turns], [turn.end_s for turn in turns]
    for start, end in stretches:
        for index in range(bisect_right(ends, start), bisect_left(starts, end)):
            turn = turns[index]
            first, last = max(start, turn.start_s), min(end, turn.end_s)
            yield DiarizationOverlap(first, last, turn.speaker, _nearest_other(index, turns, first, last))


def _nearest_other(index: int, turns: Sequence[DiarizationTurn], start: float, end: float) -> int:
    """Return the other speaker whose turn is nearest to a stretch of the turn at `index`."""
    speaker = turns[index].speaker
    sides = (range(index - 1, -1, -1), range(index + 1, len(turns)))
    others = [next((turns[other] for other in side if turns[other].speaker != speaker), None) for side in sides]
    return min(filter(None, others), key=lambda other: max(start - other.end_s, other.start_s - end)).speaker
