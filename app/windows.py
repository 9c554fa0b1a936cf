"""The windows of sessions and jobs in answers: their types, and how packed scores become them.

A field of all windows is added here, and to the client's types; a test compares the two.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import nsmallest
from operator import sub
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from topics.errors import BadRequest
from topics.geometry import SENSE, Geometry
from topics.scores import probability, threshold
from topics.times import clock

Clock = Annotated[
    str, Meta(pattern=r"^(\d{2,}:)?\d{2}:\d{2}\.\d{2}$", description="`MM:SS.ss`, or `HH:MM:SS.ss` from an hour on.")
]
Seconds = Annotated[float, Meta(ge=0, description="Seconds from the start of the audio; whole seconds are integers.")]
RecordingSeconds = Annotated[float, Meta(description="Seconds from the start of the recording.")]


class SenseEventTag(msgspec.Struct, frozen=True, gc=False):
    """A sound that was recognised in a window."""

    name: Annotated[str, Meta(description="Name of the sound; `Others` if nothing was recognised.")]
    probability: Annotated[float, Meta(ge=0, le=1, description="From 0 (impossible) to 1 (certain).")]


class SenseEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A window and what was recognised in it."""

    start_time: Seconds
    end_time: Seconds
    tags: Annotated[list[SenseEventTag], Meta(min_length=1, description="The most probable first.")]


class SoundClass(msgspec.Struct, frozen=True, gc=False, rename={"name": "class"}):
    """A sound that was recognised."""

    name: Annotated[str, Meta(description="Name of the sound.")]
    confidence: Annotated[float, Meta(ge=0, le=1)]
    id: str


class SoundWindow(msgspec.Struct, frozen=True, gc=False):
    """A window, and the sounds in it, the most confident first."""

    id: str
    start_time: Clock
    end_time: Clock
    start_time_sec: RecordingSeconds
    end_time_sec: RecordingSeconds
    classes: list[SoundClass]


#: The tag of a window without any; clients skip that name.
OTHERS: Final = SenseEventTag("Others", 0.0)
#: Windows of a job rendered at a time, about 2 ms of work.
PIECE: Final = 256

#: A reported tag: threshold minus score, as stored, at most 0; and the number of the tag. The most probable tag sorts
#: first.
ReportedTag = tuple[int, int]
W = TypeVar("W", bound=SenseEvent)

encode: Final = msgspec.json.Encoder().encode
#: A window of a job ends where a later one starts.
_clock: Final = lru_cache(maxsize=8)(clock)


def check_tags(field: str, names: Collection[str], official: Iterable[str]) -> None:
    """Check the tags that a field names.

    Raises:
        BadRequest: a tag is unknown.
    """
    if names and (unknown := sorted(set(names) - set(official))):
        raise BadRequest(f"{field}: unknown tag {unknown[0][:64]!r}")


class WindowRenderer:
    """Renders the scores of one model at one setting of the sensitivities."""

    def __init__(self, names: Sequence[str], default: int = 0, by_tag: dict[str, int] | None = None) -> None:
        self.names = names
        self.width = len(names)
        self._sensitivities = [(by_tag or {}).get(name, default) for name in names]
        self._thresholds = [threshold(sensitivity) for sensitivity in self._sensitivities]
        # A window reports few tags; the search for bytes of at least the lowest threshold runs in C.
        self._candidates = re.compile(b"[\\x%02x-\\xff]" % min(self._thresholds, default=255))
        self._tags: dict[ReportedTag, SenseEventTag] = {}

    def reported_tags(self, scores: bytes) -> list[list[ReportedTag]]:
        """Return the reported tags of each window of packed scores, most probable first."""
        windows: list[list[ReportedTag]] = [[] for _ in range(len(scores) // self.width)]
        for match in self._candidates.finditer(scores):
            place = match.start()
            window, tag = divmod(place, self.width)
            missing = self._thresholds[tag] - scores[place]
            if missing <= 0:
                windows[window].append((missing, tag))
        for tags in windows:
            tags.sort()
        return windows

    def top(self, scores: bytes, count: int) -> list[SenseEventTag]:
        """Return the most probable tags of one window, reported or not."""
        return self.named(nsmallest(count, zip(map(sub, self._thresholds, scores), range(self.width), strict=True)))

    def named(self, tags: list[ReportedTag]) -> list[SenseEventTag]:
        known = self._tags
        return [known.get(tag) or self._named(tag) for tag in tags]

    def _named(self, tag: ReportedTag) -> SenseEventTag:
        missing, number = tag
        score, sensitivity = self._thresholds[number] - missing, self._sensitivities[number]
        named = self._tags[tag] = SenseEventTag(self.names[number], probability(score, sensitivity))
        return named

    def event(self, kind: Callable[..., W], geometry: Geometry, number: int, tags: list[ReportedTag]) -> W:
        """Return a window of a session; `kind` makes it, and adds the fields that only its kind has."""
        start, end = geometry.bounds(number)
        return kind(start_time=start, end_time=end, tags=self.named(tags) if tags else [OTHERS])

    def job_windows(self, first: int, scores: bytes, hours: bool, audio_ms: int) -> Iterator[bytes]:
        """Yield windows `first`, `first` + 1, ... of a job as JSON, up to `PIECE` at a time with commas between.

        A window's id is its number; a class's id adds its tag's number. No window ends after the audio, at `audio_ms`.
        """
        step = PIECE * self.width
        for at in range(0, len(scores), step):
            windows = []
            for number, tags in enumerate(self.reported_tags(scores[at : at + step]), first + at // self.width):
                start, end = SENSE.hop_ms * number, min(SENSE.hop_ms * number + SENSE.window_ms, audio_ms)
                name, named = f"w{number}", zip(self.named(tags), tags, strict=True)
                classes = [SoundClass(tag.name, tag.probability, f"{name}-{place}") for tag, (_, place) in named]
                times = _clock(start, hours), _clock(end, hours), start / 1000, end / 1000
                windows.append(SoundWindow(name, *times, classes))
            yield encode(windows)[1:-1]
