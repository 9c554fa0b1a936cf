"""Live listening: to a session, and to all sessions and jobs of a project, while there are listeners."""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

import msgspec

from topics.ports.follower import Follower

#: Bands of a spectrogram's column, its length, and the frequencies between which the bands lie, even on the mel scale.
BANDS: Final = 64
COLUMN_MS: Final = 50
LOW_HZ: Final = 60.0
HIGH_HZ: Final = 8000.0
#: Steps of a column's bytes for each decibel; 255 is full scale.
STEPS_PER_DB: Final = 2
#: The level of silence, dBFS.
SILENCE_DB: Final = -100.0


class WindowSound(msgspec.Struct, frozen=True):
    """The level and spectrogram of a window, as long as they are remembered."""

    #: dBFS, a full-scale sine's root mean square being -3.
    rms: float
    peak: float
    #: u8[columns, BANDS] of the window's last hop; of the first window, and of one by itself, all of it.
    columns: bytes = b""


class SoundTap(Protocol):
    """A listener of one session: while it is open the session's levels and spectrogram are made."""

    def window(self, session: str, number: int) -> WindowSound | None:
        """Return the level and spectrogram of a window, or None if nobody listened then, or it is long ago."""

    def close(self) -> None: ...


class ProjectFollower(Follower, SoundTap, Protocol):
    """A listener of all sessions and jobs that a project has on this node."""

    def taken(self) -> Mapping[str, int]:
        """Return the sessions that changed since the last call.

        With each comes the number of a window from which on nothing was there to read at that call, or little: a
        reader that meets the session here begins with it.
        """

    def taken_jobs(self) -> Collection[str]:
        """Return the jobs that changed since the last call, and some ids that are none of this project's jobs."""
