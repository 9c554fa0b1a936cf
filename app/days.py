"""A day of a reader, in requests about what a project's sessions heard on it."""

import time
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from app.cluster.lists import LONGEST_PAGE
from app.http.descriptions import Fault, Parameter, fault_of, integer_query
from app.http.queries import IntegerParameter, read_date
from app.http.turns import LoopTurns
from topics.ports.lists import ListQuery
from topics.ports.sessions import Sessions, SessionView
from topics.times import DAY_MS, day_ms, utc_time
from topics.turns import Holder

MINUTE_MS: Final = 60_000
OFFSET: Final = IntegerParameter(
    "offset_minutes", "Minutes that the reader's clock is ahead of UTC.", 0, -14 * 60, 14 * 60
)
#: Sessions of a project that a node looks at for a day, newest first.
MOST_SESSIONS: Final = 10_000
DayText = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
DAY_PARAMETERS: Final = (
    Parameter("day", "query", DayText, "The day; by default today.", example="2026-11-22"),
    integer_query(OFFSET),
)


class Day(msgspec.Struct, frozen=True):
    """A day of the reader, milliseconds since 1970."""

    text: str
    offset_minutes: int
    begins: int

    @property
    def ends(self) -> int:
        return self.begins + DAY_MS


def day_faults() -> tuple[Fault, ...]:
    return (fault_of(parse_day, {"day": "yesterday"}, 0), fault_of(parse_day, {OFFSET.name: "900"}, 0))


def parse_day(query: dict[str, str], now_ms: int | None = None) -> Day:
    """Return the day of a query, by default that of `now_ms`, or today.

    Raises:
        BadRequest: it is not a day.
    """
    ahead = OFFSET.read(query)
    now = int(time.time() * 1000) if now_ms is None else now_ms
    day = read_date(query, "day", utc_time(now + ahead * MINUTE_MS).date())
    return Day(day.isoformat(), ahead, day_ms(day) - ahead * MINUTE_MS)


def window_step(view: SessionView) -> int:
    """Return the time from a window to the next one, milliseconds; windows of `/predict` do not overlap."""
    return view.opened.window_ms if view.head.predicts else view.opened.hop_ms


def windows_between(view: SessionView, count: int, begins: int, ends: int) -> range:
    """Return which of the first `count` windows of a session begin between two times (ms)."""
    opened, step = view.opened.at, window_step(view)
    if not opened:  # An early version did not record when.
        return range(0)
    return range(max(0, -(-(begins - opened) // step)), min(count, -(-(ends - opened) // step)))


async def sessions_on(
    day: Day, sessions: Sessions, turns: LoopTurns, holder: Holder, concerns: Callable[[SessionView], bool]
) -> list[tuple[str, SessionView]]:
    """Return the sessions of a project on this node that concern a day, of the newest until its end."""
    query, looked_at = ListQuery(holder.project, until_ms=max(1, day.ends), count=LONGEST_PAGE), 0
    found: list[tuple[str, SessionView]] = []
    while page := await turns.run(holder, sessions.listed, query):
        found += [(id, view) for _, id, view in page if concerns(view)]
        looked_at += len(page)
        if len(page) < LONGEST_PAGE or looked_at >= MOST_SESSIONS:
            break
        query = msgspec.structs.replace(query, after=page[-1][:2])
    return found
