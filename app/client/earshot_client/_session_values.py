"""Sessions: their options, their events, and events joined into runs."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ._window_values import Event

SessionKind = Literal["stream", "file"]


class Session(msgspec.Struct, frozen=True, rename={"id": "session_id"}):
    """An open session.

    Attributes:
        id: the secret for uploading chunks and reading events.
        chunk_sequence: the number of the first chunk.
        window_size: length of a window, seconds.
        window_hop: seconds from the start of a window to the start of the next one.
    """

    id: str
    chunk_sequence: int = 0
    window_size: float = 1
    window_hop: float = 0.5


class Sensitivity(msgspec.Struct, frozen=True):
    """How readily tags are reported, from -2 (the most) to 2 (the fewest).

    Attributes:
        default: for all tags that are not in `tags`.
        tags: by name of a tag.
    """

    default: int = 0
    tags: Mapping[str, int] = {}


DEFAULT_SENSITIVITY: Final = Sensitivity()


class SoundRule(msgspec.Struct, frozen=True):
    """When a sound is on.

    Attributes:
        windows: the sound is on when this many of the last `of` windows report it.
        of: at least `windows`.
        margin: the sound is off this many seconds after the last window that reports it.
    """

    windows: int = 1
    of: int = 1
    margin: float = 1.0


class SessionOptions(msgspec.Struct, frozen=True):
    """The options of a session, which cannot be changed.

    Attributes:
        kind: `stream` for live audio, `file` for a file that is sent in chunks.
        content_type: of the audio, such as `audio/wav` or `audio/x-raw; rate=16000; format=s16le`.
        sensitivity: how readily tags are reported.
        total_size: bytes after which the session becomes readonly by itself; the analysis of a file then starts.
        file_name: the name of the file, or of the stream, in lists and in the dashboard.
        metadata: texts by name, at most 4 KiB in all, kept with the session.
        window_hop: time from the start of a window to the start of the next one; the service's own by default.
        file_length: length of the file in seconds, as the client knows it.
        model: sound model by name; by default the one that the service uses.
        sound_rule: when a sound is on; by default from the first window that reports it to a second after the last one.
        sound_rules: the same for single sounds, by name.
    """

    kind: SessionKind
    content_type: str
    sensitivity: Sensitivity = DEFAULT_SENSITIVITY
    total_size: int | None = None
    file_name: str | None = None
    metadata: Mapping[str, str] = {}
    window_hop: Literal["0.5s", "1s"] | None = None
    file_length: float | None = None
    model: str | None = None
    sound_rule: SoundRule | None = None
    sound_rules: Mapping[str, SoundRule] = {}

    def __post_init__(self) -> None:
        """Refuse metadata that the service would not take.

        Raises:
            TypeError: a name or a value is not text.
        """
        for name, value in self.metadata.items():
            if not (isinstance(name, str) and isinstance(value, str)):
                raise TypeError(f"metadata: {name!r} is {value!r}, and both must be text")


#: Raw PCM as most microphones give it: 16 kHz, 16 bits, one channel.
MICROPHONE: Final = SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le")


class EventPage(msgspec.Struct, frozen=True):
    """Consecutive events and the token of the next page; None at the end of the session."""

    events: tuple[Event, ...]
    token: str | None = None


class _Range(msgspec.Struct, frozen=True):
    next_token: str | None = None


class _Inference(msgspec.Struct, frozen=True):
    results: tuple[Event, ...] = ()
    page: _Range = _Range()


class SessionStatus(msgspec.Struct, frozen=True):
    """The state of a session and one page of its events.

    Attributes:
        state: `writable` or `readonly`.
        inference: the page as it is sent; `page` has it in a simpler form.
        error: why the audio cannot be analysed; None if it can.
    """

    state: str
    inference: _Inference = _Inference()
    error: str | None = None

    @property
    def page(self) -> EventPage:
        """The events that were read, and the token of the next page."""
        return EventPage(self.inference.results, self.inference.page.next_token)


class Run(msgspec.Struct, frozen=True):
    """A sound over consecutive windows.

    Attributes:
        name: the tag.
        start: start of the first window, seconds from the beginning of the audio.
        end: end of the last window, seconds from the beginning of the audio.
        probability: the highest of all windows, 0 to 1.
    """

    name: str
    start: float
    end: float
    probability: float


class Runs:
    """Joins events, given in order, into runs. A run ends before the first window without its tag."""

    def __init__(self) -> None:
        self._open: dict[str, Run] = {}

    def add(self, event: Event) -> list[Run]:
        """Take the next event and return the runs that ended before it."""
        tags = {tag.name: tag for tag in event.sounds}
        runs = [self._open.pop(name) for name in list(self._open) if name not in tags]
        for name, tag in tags.items():
            run = self._open.get(name, Run(name, event.start, event.end, 0.0))
            self._open[name] = Run(name, run.start, event.end, max(run.probability, tag.probability))
        return runs

    def close(self) -> list[Run]:
        """Return the runs that end with the last event."""
        runs = list(self._open.values())
        self._open.clear()
        return runs


class SourceFault(msgspec.Struct, frozen=True):
    """What is wrong with a source: `lost` or `silent`, since a time in RFC 3339."""

    state: str
    since: str


class SessionEntry(msgspec.Struct, frozen=True, rename={"id": "session_id", "kind": "type"}):
    """A session in a list.

    Attributes:
        id: the secret for reading its events.
        state: `writable` or `readonly`.
        kind: `stream` or `file`.
        content_type: of its audio.
        created_at: RFC 3339, UTC; None if an old service did not record it.
        updated_at: when the last chunk came, RFC 3339, UTC.
        file_name: the name of its file.
        seconds: seconds of audio analysed.
        in_progress: True while uploaded chunks wait for their analysis.
        error: why the audio cannot be analysed; None if it can.
        metadata: the client's own notes.
        source: what is wrong with its source; None if nothing is, or nothing is known.
    """

    id: str
    state: str
    kind: str
    content_type: str
    created_at: str | None
    updated_at: str
    file_name: str | None
    seconds: float
    in_progress: bool
    error: str | None = None
    metadata: dict[str, str] = {}
    source: SourceFault | None = None


class SessionResults(msgspec.Struct, frozen=True, rename={"events": "data"}):
    """Events of a session, as `/results` returns them.

    Attributes:
        state: `pending` while chunks may come, `in-progress`, `done` or `error`.
        events: the requested events that exist so far.
        has_more: True if there are more after them.
        error: why the audio cannot be analysed.
    """

    state: str
    events: tuple[Event, ...]
    has_more: bool
    error: str | None = None


class Prediction(msgspec.Struct, frozen=True, rename={"event": "data"}):
    """The event of a single window, and the number of the next window."""

    event: Event
    next_sequence: int
