"""Live listening to a session, or to all sessions and jobs of a project."""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

import msgspec

from topics.alarms.alarms import Alarm
from topics.ports.follower import Follower

#: Bands of a spectrogram's column, evenly spaced on the mel scale between two frequencies; duration of a column.
BANDS: Final = 64
COLUMN_MS: Final = 50
LOW_HZ: Final = 60.0
HIGH_HZ: Final = 8000.0
#: Steps of a column's bytes per decibel; 255 is full scale.
STEPS_PER_DB: Final = 2
#: The level of silence, dBFS.
SILENCE_DB: Final = -100.0
#: Past windows that a reader gets when it meets a running session: as many as one step of a file produces.
MET_WINDOWS: Final = 64


class WindowSound(msgspec.Struct, frozen=True):
    """The level and spectrogram of a window."""

    #: dBFS; the root mean square of a full-scale sine is -3.
    rms: float
    peak: float
    #: u8[columns, BANDS] of the window's last hop, or of the whole window if it is the first or independent.
    columns: bytes = b""


class SoundTap(Protocol):
    """A listener of one session; while it is open, the session's levels and spectrogram are computed."""

    def window(self, session: str, number: int) -> WindowSound | None:
        """Return the level and spectrogram of a window, or None if there was no listener then or it is too old."""

    def close(self) -> None: ...


class ProjectFollower(Follower, SoundTap, Protocol):
    """A listener of all sessions and jobs of a project on this node."""

    def taken(self) -> Mapping[str, int]:
        """Return the sessions that changed since the last call, each with a window number.

        At the last call, few windows or none were readable from this number on. Begin there with a session that is new
        to you.
        """

    def taken_jobs(self) -> Collection[str]:
        """Return the jobs that changed since the last call, with some ids that are not of this project's jobs."""

    def taken_alarms(self) -> Collection[Alarm]:
        """Return the project's alarms that were made or changed here since the last call, as they are now."""
