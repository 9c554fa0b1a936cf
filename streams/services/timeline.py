"""A job's sounds and speech for a prompt: stretches of tags and lines of speech, as many as a prompt should hold."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from topics.geometry import SENSE
from topics.jobs.payloads import Sounds, Transcript
from topics.scores import probability, threshold

MAX_EVENTS: Final = 200
#: Characters that are kept from the beginning of the transcript, and again from its end.
HALF_CHARACTERS: Final = 12_000
#: Characters that a line counts for besides its text.
LINE_CHARACTERS: Final = 40


class TimelineEvent(msgspec.Struct, frozen=True):
    """A stretch in which a tag is reported, in seconds, and its highest probability."""

    tag: str
    start: float
    end: float
    peak: float


class TimelineLine(msgspec.Struct, frozen=True):
    """The words of a speaker from `start` to `end`, in seconds."""

    start: float
    end: float
    speaker: str
    text: str


class EventCollector:
    """Merges the windows of a recording into stretches, and keeps the longest and strongest ones.

    One thread at a time.
    """

    def __init__(self, tags: Callable[[str], Sequence[str]], length_ms: int) -> None:
        """Begin before the first window; `tags` returns the tags of a model by its id.

        The last windows may reach beyond the end of the audio, at `length_ms`: a stretch does not.
        """
        self._tags = tags
        self._length_ms = length_ms
        #: The stretch of each tag that may go on: start and end in ms, and its highest score.
        self._open: dict[str, tuple[int, int, int]] = {}
        #: Finished stretches as a heap: the next stronger one replaces the first.
        self._heap: list[tuple[float, int, TimelineEvent]] = []
        self._count = 0

    def add(self, sounds: Sounds) -> None:
        """Take the next windows.

        Raises:
            ServiceError: their model is unknown here.
        """
        tags = self._tags(sounds.model)
        scores = np.frombuffer(sounds.scores, np.uint8).reshape(-1, sounds.tags)
        reported = scores >= threshold(0)
        for tag in np.flatnonzero(reported.any(axis=0)).tolist():
            windows = np.flatnonzero(reported[:, tag])
            # Windows overlap; stretches that touch are one.
            gaps = np.flatnonzero(np.diff(windows) * SENSE.hop_ms > SENSE.window_ms) + 1
            for stretch in np.split(windows, gaps):
                start = (sounds.first + int(stretch[0])) * SENSE.hop_ms
                end = (sounds.first + int(stretch[-1])) * SENSE.hop_ms + SENSE.window_ms
                self._extend(tags[tag], start, min(end, self._length_ms), int(scores[stretch, tag].max()))

    def finish(self) -> list[TimelineEvent]:
        """Return the stretches in order of time."""
        for tag, stretch in self._open.items():
            self._keep(tag, *stretch)
        self._open.clear()
        return sorted((event for _, _, event in self._heap), key=lambda event: (event.start, event.tag))

    def _extend(self, tag: str, start: int, end: int, peak: int) -> None:
        before = self._open.get(tag)
        if before is not None and start <= before[1]:
            start, peak = before[0], max(peak, before[2])
        elif before is not None:
            self._keep(tag, *before)
        self._open[tag] = (start, end, peak)

    def _keep(self, tag: str, start: int, end: int, peak: int) -> None:
        event = TimelineEvent(tag, start / 1000, end / 1000, probability(peak))
        self._count += 1
        item = ((end - start) * event.peak, -self._count, event)
        if len(self._heap) < MAX_EVENTS:
            heapq.heappush(self._heap, item)
        else:
            heapq.heappushpop(self._heap, item)


class TranscriptCollector:
    """Keeps the beginning and the end of a transcript. One thread at a time."""

    def __init__(self) -> None:
        self._head: list[TimelineLine] = []
        self._head_cost = 0
        self._tail: deque[TimelineLine] = deque()
        self._tail_cost = 0
        #: True once something in the middle was left out.
        self.cut = False
        self.languages: tuple[str, ...] = ()

    def add(self, transcript: Transcript) -> None:
        """Take the next segments."""
        self.languages = transcript.languages or self.languages
        for segment in transcript.segments:
            line = TimelineLine(segment.start_ms / 1000, segment.end_ms / 1000, segment.name, segment.text)
            room = HALF_CHARACTERS - self._head_cost - LINE_CHARACTERS
            if room > 0:
                self._head.append(_shortened(line, line.text[:room]))
                self._head_cost += _cost(self._head[-1])
                line = _shortened(line, line.text[room:])
            if line.text:
                self._append_to_tail(line)

    def finish(self) -> list[TimelineLine]:
        return [*self._head, *self._tail]

    def _append_to_tail(self, line: TimelineLine) -> None:
        text = line.text[-(HALF_CHARACTERS - LINE_CHARACTERS) :]
        self.cut |= len(text) < len(line.text)
        self._tail.append(_shortened(line, text))
        self._tail_cost += _cost(self._tail[-1])
        while self._tail_cost > HALF_CHARACTERS:
            self._tail_cost -= _cost(self._tail.popleft())
            self.cut = True


def _cost(line: TimelineLine) -> int:
    return LINE_CHARACTERS + len(line.text)


def _shortened(line: TimelineLine, text: str) -> TimelineLine:
    return line if text == line.text else msgspec.structs.replace(line, text=text)
