"""The values that the client takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

Kind = Literal["stream", "file"]

#: The tag of a window in which nothing was recognised.
NOTHING: Final = "Others"


class Session(msgspec.Struct, frozen=True, rename={"id": "session_id"}):
    """An open session; window length and hop are in seconds."""

    id: str
    chunk_sequence: int = 0
    window_size: float = 1
    window_hop: float = 0.5


class Tag(msgspec.Struct, frozen=True):
    """One recognised sound and its probability, 0 to 1."""

    name: str
    probability: float


class Event(msgspec.Struct, frozen=True, rename={"start": "start_time", "end": "end_time"}):
    """One window, in seconds from the start of the audio, and what was recognised in it."""

    start: float
    end: float
    tags: tuple[Tag, ...]

    @property
    def sounds(self) -> tuple[Tag, ...]:
        """The tags without the one that says that there is none."""
        return tuple(tag for tag in self.tags if tag.name != NOTHING)


class Sensitivity(msgspec.Struct, frozen=True):
    """How readily tags are reported, -2 to 2: a positive number reports less, a negative one more."""

    default: int = 0
    tags: Mapping[str, int] = {}


NORMAL: Final = Sensitivity()


class Opening(msgspec.Struct, frozen=True):
    """What a session is opened with; it cannot be changed afterwards."""

    kind: Kind
    content_type: str
    sensitivity: Sensitivity = NORMAL
    #: Bytes after which the session becomes readonly by itself; a file's inference then starts.
    total_size: int | None = None
    file_name: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Consecutive events and the token of the page after them, None at the end of the session."""

    events: tuple[Event, ...]
    token: str | None = None


class _Range(msgspec.Struct, frozen=True):
    next_token: str | None = None


class _Inference(msgspec.Struct, frozen=True):
    results: tuple[Event, ...] = ()
    page: _Range = _Range()


class Status(msgspec.Struct, frozen=True):
    """What a status read answers."""

    state: str
    inference: _Inference = _Inference()
    error: str | None = None

    @property
    def page(self) -> Page:
        """The events of this read."""
        return Page(self.inference.results, self.inference.page.next_token)


class Run(msgspec.Struct, frozen=True):
    """One sound over consecutive windows: from the first one's start to the last one's end, with its best score."""

    name: str
    start: float
    end: float
    probability: float


class Runs:
    """Joins events, taken in order, into runs; a run ends with the first window that lacks its tag."""

    def __init__(self) -> None:
        self._open: dict[str, Run] = {}

    def add(self, event: Event) -> list[Run]:
        """Take the next event and return the runs that ended before it."""
        heard = {tag.name: tag for tag in event.sounds}
        ended = [self._open.pop(name) for name in list(self._open) if name not in heard]
        for name, tag in heard.items():
            before = self._open.get(name, Run(name, event.start, event.end, 0.0))
            self._open[name] = Run(name, before.start, event.end, max(before.probability, tag.probability))
        return ended

    def close(self) -> list[Run]:
        """Return the runs that were still open."""
        ended = list(self._open.values())
        self._open.clear()
        return ended
