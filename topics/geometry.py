"""Window geometry: the windows of a recording, in milliseconds and in counts."""

from collections.abc import Iterable
from typing import Final

import msgspec

#: Duration of one patch of a model.
PATCH_MS: Final = 1000
#: A shorter tail (less than one analysis frame) is not analysed.
SHORTEST_TAIL_MS: Final = 25


class Geometry(msgspec.Struct, frozen=True):
    """Length and hop of a session's windows, in milliseconds; both are multiples of half a second."""

    window_ms: int
    hop_ms: int

    @property
    def patches(self) -> int:
        """Number of patches whose mean a window is (one per second)."""
        return self.window_ms // PATCH_MS

    @property
    def stride(self) -> int:
        """Distance between a window's patches, in hops: patches are scored every hop."""
        return PATCH_MS // self.hop_ms

    def bounds(self, window: int) -> tuple[int | float, int | float]:
        """Return (start, end) of a window in seconds, whole seconds as integers."""
        start = window * self.hop_ms
        return seconds(start), seconds(start + self.window_ms)

    def within(self, gaps: Iterable[tuple[int, int]], rate: int, first: int = 0) -> tuple[tuple[int, int], ...]:
        """Return the windows from `first` on, as (first, end), that lie wholly in each of some gaps.

        Gaps are (first, end) in samples of `rate` Hz.
        """
        found = []
        for start, end in gaps:
            begin = max(first, -(-start * 1000 // (rate * self.hop_ms)))
            stop = (end * 1000 - rate * self.window_ms) // (rate * self.hop_ms) + 1
            if begin < stop:
                found.append((begin, stop))
        return tuple(found)


#: `/audio_sessions`, specification 1.1.0.
SESSIONS: Final = Geometry(window_ms=1000, hop_ms=500)
#: `/sense/api/v1` and jobs.
SENSE: Final = Geometry(window_ms=2000, hop_ms=1000)


def seconds(milliseconds: int) -> int | float:
    """Return seconds, as an integer if whole: some clients cannot parse `2.0` into an integer field."""
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000
