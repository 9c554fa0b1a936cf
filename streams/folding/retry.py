"""How long to wait before a retry, the same for work on sessions, services of jobs, and bills."""

from __future__ import annotations

#: After the first failure in a row; twice as long after each further one.
FIRST_SECONDS = 0.5
LONGEST_SECONDS = 5.0


def pause(failures: int, longest: float | None = None) -> float:
    """Return for how many seconds to wait after so many failures in a row, 1 and more; at most `longest`."""
    doublings = min(failures - 1, 16)
    return min(LONGEST_SECONDS if longest is None else longest, FIRST_SECONDS * 2.0**doublings)
