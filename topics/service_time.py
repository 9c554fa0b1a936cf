"""Service time: log time without the time in which the service was away. The service's deadlines count it."""

from typing import Final

import msgspec

from topics.rows import Decoder

MINUTE_MS: Final = 60_000
#: Absences that are noted one by one. Beyond, the two that are closest to each other for their age become one.
MOST_ABSENCES: Final = 100


class Served(msgspec.Struct, frozen=True, array_like=True):
    """The log time (ms) until which a partition was served, and the times [begin, end) before at which it was not."""

    until: int
    absences: tuple[tuple[int, int], ...] = ()

    def absent_since(self, at: int) -> int:
        """Return how much of the time since `at` the service was away, in ms."""
        return sum(end - max(begin, at) for begin, end in self.absences if end > at)

    def after(self, now: int, longest_gap: int) -> "Served":
        """Return the state at a time at which the partition is served; it was away if a gap is over `longest_gap` ms.

        A clock that goes ahead looks like an absence, and nothing expires by it. If it goes back later, that absence
        becomes shorter again. A clock that goes back by at most a minute stands still instead, like the log's.
        """
        if now < self.until - MINUTE_MS:
            return self._set_back(now)
        if now - self.until <= longest_gap:
            return Served(max(now, self.until), self.absences)
        absences = [*self.absences, (self.until, now)]
        if len(absences) > MOST_ABSENCES:
            pairs = range(len(absences) - 1)
            place = min(pairs, key=lambda at: (absences[at + 1][0] - absences[at][1]) / (now - absences[at][0]))
            (begin, end), (other, last) = absences[place : place + 2]
            absences[place : place + 2] = [(other - (end - begin), last)]
        return Served(now, tuple(absences))

    def _set_back(self, now: int) -> "Served":
        """Return the state after the clock went back, with the same service time if it had gone ahead before."""
        back, kept = self.until - now, list[tuple[int, int]]()
        for begin, end in reversed(self.absences):
            if end > now:
                less = min(back, end - begin)
                back, end = back - less, min(end - less, now)
            if end > begin:
                kept.append((begin, end))
        return Served(now, tuple(reversed(kept)))


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """The state in which the sweeper found a session or job: the value of its entry in the expiry index."""

    #: The log time (ms) at which it was first found in this state.
    since: int
    #: As in its head; the command is -1 while its work waits.
    command: int
    progress: int

    def precedes(self, other: "Seen") -> bool:
        """Return whether this is an earlier look at the same state."""
        return self.since <= other.since and (self.command, self.progress) == (other.command, other.progress)


served: Final = Decoder[Served](Served).optional
seen: Final = Decoder[Seen](Seen).optional
