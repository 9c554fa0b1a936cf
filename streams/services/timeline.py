"""A job's sounds and speech for a prompt: stretches of tags and lines of speech, within the prompt's limits."""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import nsmallest
from itertools import chain, pairwise
from typing import Final

import msgspec
import numpy as np

from topics.geometry import SENSE
from topics.jobs.payloads import Sounds, Transcript
from topics.scores import probability, threshold

MAX_EVENTS: Final = 200
#: Characters kept from the beginning of the transcript, and as many from its end.
HALF_CHARACTERS: Final = 12_000
#: Characters counted for each line besides its text.
LINE_CHARACTERS: Final = 40


class TimelineEvent(msgspec.Struct, frozen=True):
    """A stretch in which a tag is reported, in seconds, with its highest probability and number of windows."""

    tag: str
    start: float
    end: float
    peak: float
    windows: int


class TimelineLine(msgspec.Struct, frozen=True):
    """The words of a speaker from `start` to `end`, in seconds."""

    start: float
    end: float
    speaker: str
    text: str


class EventCollector:
    """Merges the windows of a recording into stretches; if there are too many, it drops the shortest pauses.

    So it covers every reported tag from its first window to its last. One thread at a time.
    """

    def __init__(self, tags: Callable[[str], Sequence[str]], length_ms: int) -> None:
        """Begin before the first window; `tags` returns a model's tags by its id.

        The last windows may reach beyond the end of the audio, `length_ms`; stretches do not.
        """
        self._tags = tags
        self._length_ms = length_ms
        #: In order of time.
        self._stretches: dict[str, list[TimelineEvent]] = {}
        self._count = 0

    def add(self, sounds: Sounds) -> None:
        """Take the next windows.

        Raises:
            ServiceError: the model is unknown here.
        """
        tags = self._tags(sounds.model)
        scores = np.frombuffer(sounds.scores, np.uint8).reshape(-1, sounds.tags)
        reported = scores >= threshold(0)
        for tag in np.flatnonzero(reported.any(axis=0)).tolist():
            windows = np.flatnonzero(reported[:, tag])
            # Windows overlap; merge stretches that touch.
            gaps = np.flatnonzero(np.diff(windows) * SENSE.hop_ms > SENSE.window_ms) + 1
            for stretch in np.split(windows, gaps):
                start = (sounds.first + int(stretch[0])) * SENSE.hop_ms
                end = (sounds.first + int(stretch[-1])) * SENSE.hop_ms + SENSE.window_ms
                end = min(end, self._length_ms)
                peak = probability(int(scores[stretch, tag].max()))
                self._extend(TimelineEvent(tags[tag], start / 1000, end / 1000, peak, len(stretch)))

    def finish(self) -> list[TimelineEvent]:
        """Return the stretches in order of time."""
        self._join_nearest()
        return sorted(chain.from_iterable(self._stretches.values()), key=lambda event: (event.start, event.tag))

    def _extend(self, event: TimelineEvent) -> None:
        stretches = self._stretches.setdefault(event.tag, [])
        if stretches and event.start <= stretches[-1].end:
            stretches.append(_joined(stretches.pop(), event))
            return
        stretches.append(event)
        self._count += 1
        if self._count > 2 * MAX_EVENTS:
            self._join_nearest()

    def _join_nearest(self) -> None:
        """Join a tag's stretches over the shortest pauses, until `MAX_EVENTS` remain or one per tag."""
        pauses = (
            (after.start - before.end, tag, number)
            for tag, stretches in self._stretches.items()
            for number, (before, after) in enumerate(pairwise(stretches), 1)
        )
        excess = max(0, self._count - MAX_EVENTS)
        # From last to first, so that the other indexes stay valid.
        for _, tag, number in sorted(nsmallest(excess, pauses), key=lambda pause: -pause[2]):
            stretches = self._stretches[tag]
            stretches[number - 1 : number + 1] = [_joined(*stretches[number - 1 : number + 1])]
            self._count -= 1


def _joined(event: TimelineEvent, later: TimelineEvent) -> TimelineEvent:
    peak, windows = max(event.peak, later.peak), event.windows + later.windows
    return TimelineEvent(event.tag, event.start, max(event.end, later.end), peak, windows)


class TranscriptCollector:
    """Keeps the beginning and the end of a transcript. One thread at a time."""

    def __init__(self) -> None:
        self._head: list[TimelineLine] = []
        self._head_cost = 0
        self._tail: deque[TimelineLine] = deque()
        self._tail_cost = 0
        #: True once part of the middle was left out.
        self.cut = False
        self.languages: tuple[str, ...] = ()

    def add(self, transcript: Transcript) -> None:
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
