"""Counts how long each sound was reported in each hour of a day, from the stored windows.

It counts one slice of windows at a time, so that other requests are served in between. It remembers how far each hour
of a session was counted: a request that hit its time limit continues when it is repeated.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
from cachetools import LRUCache

from app.http.holder_quota import HolderQuota
from app.sessions.rendering import EventRenderer, readable_windows
from topics.errors import Unavailable
from topics.ports.sessions import SessionView
from topics.times import DAY_MS, HOUR_MS

HOURS: Final = 24
#: Time limit of a request's counting on each node; another node waits for `app.cluster.lists.PART_SECONDS`.
COUNT_SECONDS: Final = 2.0
#: Requests that are counted or wait for it, in total and of one project.
WAITING: Final = 32
PROJECT_WAITING: Final = 8
CROWDED: Final = f"{WAITING} requests for a day are being counted here; try again"
PROJECT_CROWDED: Final = f"{PROJECT_WAITING} of the project's requests for a day are being counted here; try again"
#: Windows counted at a time: a millisecond or two.
SLICE: Final = 512
#: Capacity in tags per hour of a session, some 100 bytes each.
REMEMBERED: Final = 200_000

#: Milliseconds by tag; under "" those of all analysed audio.
Tally = Counter[str]


class Day(msgspec.Struct, frozen=True):
    """A day of the reader, milliseconds since 1970."""

    text: str
    offset_minutes: int
    begins: int

    @property
    def ends(self) -> int:
        return self.begins + DAY_MS


class ActivityCounter:
    """Counts the windows of sessions by hour, for one request at a time, and remembers its progress."""

    def __init__(self, renderer: EventRenderer) -> None:
        self._renderer = renderer
        self._turn = asyncio.Lock()
        self._places = HolderQuota(PROJECT_WAITING, WAITING, PROJECT_CROWDED, CROWDED, round(COUNT_SECONDS))
        #: By session and start of an hour: the counts, and the first uncounted window.
        self._hours: LRUCache[tuple[str, int], tuple[Tally, int]] = LRUCache(REMEMBERED, lambda kept: 1 + len(kept[0]))

    async def count(
        self, project: str, sessions: Iterable[tuple[str, SessionView]], day: Day
    ) -> tuple[list[Tally], int]:
        """Return the reports in each hour of a day, and the number of sessions of a project not counted to their end.

        Raises:
            Unavailable: too many requests wait.
        """
        hours = [Tally() for _ in range(HOURS)]
        left_out = 0
        with self._places.place(project):
            async with self._turn:
                until = time.monotonic() + COUNT_SECONDS
                for session, view in sessions:
                    whole = True
                    for hour, windows in hourly_windows(view, day):
                        key = session, day.begins + hour * HOUR_MS
                        if time.monotonic() < until:
                            with suppress(Unavailable):  # It was deleted meanwhile, or has moved.
                                hours[hour].update(await self._tally(key, view, windows))
                        else:
                            tally, first = self._hours.get(key, (Tally(), windows.start))
                            hours[hour].update(tally)
                            whole = whole and first >= windows.stop
                    left_out += not whole
                    await asyncio.sleep(0)
        return hours, left_out

    async def _tally(self, key: tuple[str, int], view: SessionView, windows: range) -> Tally:
        tally, first = self._hours.get(key, (Tally(), windows.start))
        step = window_step(view)
        while first < windows.stop:
            stop = min(windows.stop, first + SLICE)
            for renderer, packed in self._renderer.scored(key[0], view.opened, first, stop):
                for tags in renderer.reported_tags(packed):
                    tally.update({renderer.names[tag]: step for _, tag in tags})
            tally[""] += step * (stop - first)
            first = stop
            self._hours[key] = tally, first
            await asyncio.sleep(0)
        return tally


def window_step(view: SessionView) -> int:
    """Return the time from a window to the next one, milliseconds; windows of `/predict` do not overlap."""
    return view.opened.window_ms if view.head.predicts else view.opened.hop_ms


def hourly_windows(view: SessionView, day: Day) -> Iterator[tuple[int, range]]:
    """Yield the hours of a day in which a session has windows, and these windows."""
    opened, total, step = view.opened.at, readable_windows(view), window_step(view)
    if not opened:  # An early version did not record when.
        return
    for hour in range(HOURS):
        begins = day.begins + hour * HOUR_MS - opened
        windows = range(max(0, -(-begins // step)), min(total, -(-(begins + HOUR_MS) // step)))
        if windows:
            yield hour, windows
