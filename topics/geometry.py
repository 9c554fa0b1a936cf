"""Window geometry: which windows a recording has, in milliseconds and in counts."""

from typing import Final

import msgspec

#: The time that one patch of a model stands for.
PATCH_MS: Final = 1000
#: A tail shorter than this (one analysis frame) holds nothing to analyse.
SHORTEST_TAIL_MS: Final = 25


class Geometry(msgspec.Struct, frozen=True):
    """Length and hop of the windows of a session, in milliseconds; both are whole numbers of half seconds."""

    window_ms: int
    hop_ms: int

    @property
    def patches(self) -> int:
        """Patches that a window is the mean of (one a second of window)."""
        return self.window_ms // PATCH_MS

    @property
    def stride(self) -> int:
        """Patches are scored every hop; a window's patches lie this many hops apart."""
        return PATCH_MS // self.hop_ms

    def bounds(self, window: int) -> tuple[int | float, int | float]:
        """Return (start, end) of a window in seconds, whole seconds as integers."""
        start = window * self.hop_ms
        return seconds(start), seconds(start + self.window_ms)


#: `/audio_sessions`, specification 1.1.0.
SESSIONS: Final = Geometry(window_ms=1000, hop_ms=500)
#: `/sense/api/v1` and jobs.
SENSE: Final = Geometry(window_ms=2000, hop_ms=1000)


def seconds(milliseconds: int) -> int | float:
    """Return seconds, as an integer when whole: some clients cannot read `2.0` into an integer field."""
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000
