"""Counts how long each sound was reported in each hour of a day, from the stored windows.

It counts one slice of windows at each turn of the project. It remembers how far each hour of a session was counted: a
request that hit its time limit continues when it is repeated.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from cachetools import LRUCache

from app.days import Day, window_step, windows_between
from app.http.holder_quota import HolderQuota, Places
from app.http.turns import LoopTurns
from app.sessions.rendering import EventRenderer, readable_windows
from topics.errors import Unavailable
from topics.ports.sessions import SessionView
from topics.times import HOUR_MS
from topics.turns import Holder

HOURS: Final = 24
#: Time limit of a request on each node, turns of others included; another node waits for
#: `app.cluster.lists.PART_SECONDS`.
COUNT_SECONDS: Final = 2.0
#: Requests that are counted at a time, in total and of one project.
WAITING: Final = 32
PROJECT_WAITING: Final = 8
CROWDED: Final = f"{WAITING} requests for a day are being counted here; try again"
PROJECT_CROWDED: Final = f"{PROJECT_WAITING} of the project's requests for a day are being counted here; try again"
#: Windows counted in one turn: a millisecond.
SLICE: Final = 256
#: Capacity in tags per hour of a session, some 100 bytes each.
REMEMBERED: Final = 200_000

#: Milliseconds by tag; under "" those of all analysed audio.
Tally = Counter[str]


class ActivityCounter:
    """Counts the windows of sessions by hour, and remembers its progress."""

    def __init__(self, renderer: EventRenderer, turns: LoopTurns) -> None:
        self._renderer = renderer
        self._turns = turns
        self._places = HolderQuota(
            Places(PROJECT_WAITING, PROJECT_CROWDED),
            Places(WAITING // 2, CROWDED),
            Places(WAITING, CROWDED),
            round(COUNT_SECONDS),
        )
        #: By session and start of an hour: the counts, and the first uncounted window.
        self._hours: LRUCache[tuple[str, int], tuple[Tally, int]] = LRUCache(REMEMBERED, lambda kept: 1 + len(kept[0]))

    async def count(
        self, holder: Holder, sessions: Iterable[tuple[str, SessionView]], day: Day
    ) -> tuple[list[Tally], int]:
        """Return the reports in each hour of a day, and the number of the holder's sessions not counted to their end.

        Raises:
            Unavailable: too many requests are counted.
        """
        hours = [Tally() for _ in range(HOURS)]
        left_out = 0
        with self._places.place(holder):
            until = time.monotonic() + COUNT_SECONDS
            for session, view in sessions:
                whole = True
                for hour, windows in hourly_windows(view, day):
                    key = session, day.begins + hour * HOUR_MS
                    tally, first = self._hours.get(key, (Tally(), windows.start))
                    with suppress(Unavailable):  # It was deleted meanwhile, or has moved.
                        while first < windows.stop and time.monotonic() < until:
                            tally, first = await self._turns.run(
                                holder, self._counted_on, key, view, tally, range(first, windows.stop)
                            )
                        whole = whole and first >= windows.stop
                    hours[hour].update(tally)
                left_out += not whole
        return hours, left_out

    def _counted_on(self, key: tuple[str, int], view: SessionView, before: Tally, left: range) -> tuple[Tally, int]:
        """Count the next of the windows that are left; return the counts and the first uncounted window."""
        tally, step, stop = Tally(before), window_step(view), min(left.stop, left.start + SLICE)
        for renderer, packed in self._renderer.scored(key[0], view.opened, left.start, stop):
            for tags in renderer.reported_tags(packed):
                tally.update({renderer.names[tag]: step for _, tag in tags})
        tally[""] += step * (stop - left.start)
        if self._hours.get(key, (tally, 0))[1] < stop:  # Another request may have counted further meanwhile.
            self._hours[key] = tally, stop
        return tally, stop


def hourly_windows(view: SessionView, day: Day) -> Iterator[tuple[int, range]]:
    """Yield the hours of a day in which a session has windows, and these windows."""
    for hour in range(HOURS):
        begins = day.begins + hour * HOUR_MS
        if windows := windows_between(view, readable_windows(view), begins, begins + HOUR_MS):
            yield hour, windows
