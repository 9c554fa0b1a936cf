"""Turns speech probabilities of 32 ms frames into segments, with hysteresis."""

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from streams.models.protocol import Floats

RATE: Final = 16_000
#: Samples of a frame, and its length in seconds.
FRAME: Final = 512
FRAME_S: Final = FRAME / RATE


class SpeechSegment(msgspec.Struct, frozen=True):
    """A stretch of speech, in seconds from the beginning of the audio."""

    start_s: float
    end_s: float


class Hysteresis(msgspec.Struct, frozen=True):
    """How probabilities become segments.

    The default thresholds, shortest speech and padding are those of silero-vad's `get_speech_timestamps`
    (https://github.com/snakers4/silero-vad/blob/master/src/silero_vad/utils_vad.py), whose minimum silence is half.
    """

    #: Speech begins with a frame of at least `on`, and ends when frames stay below `off` for `min_silence_s`.
    on: float = 0.5
    off: float = 0.35
    #: Shorter speech, measured before padding, is dropped.
    min_speech_s: float = 0.25
    min_silence_s: float = 0.2
    #: Added on both sides; at most half of `min_silence_s`, so that segments stay apart.
    pad_s: float = 0.03
    #: Speech without a pause is cut into segments of this length, to bound the wait for a segment.
    max_speech_s: float = math.inf


class SpeechSegmenter:
    """Turns the probabilities of one stream into segments, each as soon as it is certain. One thread at a time."""

    def __init__(self, settings: Hysteresis) -> None:
        self._settings = settings
        self._silence = max(1, round(settings.min_silence_s / FRAME_S))
        self._longest = max(1.0, settings.max_speech_s / FRAME_S)
        self._frame = 0
        #: First frame of the current speech, and the frame after its last one of at least `off`.
        self._start: int | None = None
        self._end = 0
        #: Whether the current speech continues a segment that was cut.
        self._continued = False

    @property
    def settled_s(self) -> float:
        """The earliest start of all future segments, in seconds."""
        start = self._frame if self._start is None else self._start
        return max(0.0, start * FRAME_S - self._settings.pad_s)

    def feed(self, probabilities: Floats) -> Iterator[SpeechSegment]:
        """Take the probabilities of the next frames, float32[frames], and yield the segments they complete."""
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
        """End the stream, `length_s` long, and yield the remaining segment, if any."""
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
        segment = SpeechSegment(max(0.0, begin), self._end * FRAME_S + (0.0 if cut else pad))
        self._continued, self._start = cut, self._end
        return segment
