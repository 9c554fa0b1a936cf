"""Live events, and the activity of a day."""

import msgspec

from ._alarm_values import Alarm
from ._job_values import JobProgress
from ._json import decoded, decoded_event
from ._missing_part import MissingPart
from ._window_values import Event, Tag


class Level(msgspec.Struct, frozen=True):
    """The loudness of a window in dBFS: root mean square and largest sample."""

    rms: float
    peak: float


class Strip(msgspec.Struct, frozen=True, rename={"start": "start_time"}):
    """Columns of a spectrogram.

    Attributes:
        start: seconds from the beginning of the audio.
        columns: 64 bytes for each 50 ms, the lowest band first; a byte q is (q - 255) / 2 dB against full scale.
    """

    start: float
    columns: bytes


class LiveWindow(Event, frozen=True, kw_only=True, rename={"start": "start_time", "end": "end_time"}):
    """An analysed window.

    Attributes:
        session_id: id of its session.
        window: its number.
        top: the five most probable sounds, reported or not.
        level: None if unknown.
        strip: None if unknown or not requested.
        captured_at: when its audio was captured, RFC 3339, UTC; None if no client told times.
    """

    session_id: str
    window: int
    top: tuple[Tag, ...] = ()
    level: Level | None = None
    strip: Strip | None = None
    captured_at: str | None = None


class _Subject(msgspec.Struct, frozen=True):
    session_id: str | None = None
    job_id: str | None = None


class LiveEvent(msgspec.Struct, frozen=True):
    """An event of a live stream.

    Attributes:
        kind: `window`; `session` when one is first seen or changes its state; `ended`, `deleted`, `moved`; `behind`
            before late windows; for a project also those of sounds, as of a socket, `job` when one progresses,
            `job.removed`, `alarm` when one is made or changes, and `missing`.
        data: the event as JSON.
    """

    kind: str
    data: bytes

    @property
    def session_id(self) -> str | None:
        """The session of the event; None for events of jobs and `missing`.

        Raises:
            ServiceUnreachable: it is not JSON.
        """
        return decoded(self.data, _Subject).session_id

    @property
    def job_id(self) -> str | None:
        """The job of the event; None for events without a job.

        Raises:
            ServiceUnreachable: it is not JSON.
        """
        return decoded(self.data, _Subject).job_id

    @property
    def window(self) -> LiveWindow:
        """The window in an event of the kind `window`.

        Raises:
            ValueError: the event is of another kind.
        """
        return decoded_event(self.kind, self.data, "window", LiveWindow)

    @property
    def job(self) -> JobProgress:
        """The job's progress in an event of the kind `job`.

        Raises:
            ValueError: the event is of another kind.
        """
        return decoded_event(self.kind, self.data, "job", JobProgress)

    @property
    def alarm(self) -> Alarm:
        """The alarm in an event of the kind `alarm`.

        Raises:
            ValueError: the event is of another kind.
        """
        return decoded_event(self.kind, self.data, "alarm", Alarm)


class TagHours(msgspec.Struct, frozen=True):
    """A sound, and for how many seconds it was reported in each of 24 hours."""

    name: str
    seconds: tuple[float, ...]


class Activity(msgspec.Struct, frozen=True):
    """The sounds reported on a day.

    Attributes:
        day: `YYYY-MM-DD`.
        offset_minutes: how far the clock of its hours is ahead of UTC.
        analysed: seconds of audio in each of 24 hours.
        tags: sounds, the longest first.
        sessions: how many had audio on this day.
        left_out: how many of them were not counted completely: ask again.
        missing: the part on nodes that did not answer.
    """

    day: str
    offset_minutes: int
    analysed: tuple[float, ...]
    tags: tuple[TagHours, ...]
    sessions: int
    left_out: int = 0
    missing: MissingPart | None = None
