"""The heat map of a day: how long each sound was reported in each hour, for one session or all of a project.

A window counts for the time up to the next one. Its time of day is the opening of the session plus its position in the
audio.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from app.cluster.forwarding import FORWARDED
from app.cluster.lists import LONGEST_PAGE, NOBODY, MissingPart, part_of
from app.http.call import Call
from app.http.queries import IntegerParameter, query_parameters, read_date
from app.http.replies import Reply, json_reply
from app.http.turns import holder_of
from app.sessions.activity_counter import HOURS, Day, Tally, hourly_windows
from app.sessions.session_context import SessionContext
from app.sessions.waiting import allowed_session, session_view
from topics.errors import Unavailable
from topics.geometry import seconds
from topics.ports.lists import ListQuery
from topics.ports.sessions import SessionView
from topics.times import day_ms, utc_time
from topics.turns import Holder

MINUTE_MS: Final = 60_000
OFFSET: Final = IntegerParameter(
    "offset_minutes", "Minutes that the reader's clock is ahead of UTC.", 0, -14 * 60, 14 * 60
)
#: Sessions of a project that a node counts for a day, newest first.
MOST_SESSIONS: Final = 10_000


class TagHours(msgspec.Struct, frozen=True):
    """A sound, and for how long it was reported in each hour of the day."""

    name: str
    seconds: Annotated[list[float], msgspec.Meta(min_length=HOURS, max_length=HOURS)]


DayText = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class Activity(msgspec.Struct, frozen=True):
    """The sounds reported on a day, by hour of the reader's clock."""

    day: DayText
    offset_minutes: int
    analysed: Annotated[
        list[float], msgspec.Meta(description="Seconds of audio of each hour.", min_length=HOURS, max_length=HOURS)
    ]
    tags: Annotated[list[TagHours], msgspec.Meta(description="The longest first.")]
    sessions: Annotated[int, msgspec.Meta(ge=0, description="Sessions that had audio on this day.")]
    left_out: Annotated[int, msgspec.Meta(ge=0, description="Sessions not fully counted; ask again.")] = 0
    missing: MissingPart | msgspec.UnsetType = msgspec.UNSET


class Part(msgspec.Struct, frozen=True):
    """One node's part of a day, as nodes exchange it."""

    partitions: frozenset[int]
    hours: list[dict[str, int]]
    sessions: int
    left_out: int


_part: Final = msgspec.json.Decoder(Part)


async def session_activity(call: Call, context: SessionContext) -> Reply:
    """GET /audio_sessions/{id}/activity: a day of one session; needs no key, because the id is a secret too."""
    session, view = await allowed_session(call, context)
    day = parse_day(query_parameters(call.scope))
    hours, left_out = await context.activity.count(call.holder, [(session, view)], day)
    session_view(context, session)  # Fails if the session was deleted meanwhile.
    counted = any(tally for tally in hours)
    return json_reply(activity(day, hours, int(counted), left_out))


async def project_activity(call: Call, context: SessionContext) -> Reply:
    """GET /api/v1/activity: a day of all sessions of the project, from all nodes."""
    holder = holder_of(await context.project_keys.authenticate(call))
    day = parse_day(query_parameters(call.scope))
    if call.header(FORWARDED):
        return json_reply(await _own_part(context, holder, day))
    urls = sorted(context.sessions.coverage().elsewhere)
    forwarder = context.list.forwarder
    asked = [part_of(call, forwarder, url, _part.decode) for url in urls]
    own, *others = await asyncio.gather(_own_part(context, holder, day), *asked)
    parts = [part for part in (own, *others) if part is not None]
    covered = frozenset().union(*(part.partitions for part in parts))
    if not covered:
        raise Unavailable(NOBODY)
    hours = [Tally() for _ in range(HOURS)]
    for part in parts:
        for tally, more in zip(hours, part.hours, strict=True):
            tally.update(more)
    whole = activity(day, hours, sum(part.sessions for part in parts), sum(part.left_out for part in parts))
    partitions = context.sessions.coverage().partitions
    if missing := partitions - len(covered):
        whole = msgspec.structs.replace(whole, missing=MissingPart(missing, partitions))
    return json_reply(whole)


async def _own_part(context: SessionContext, holder: Holder, day: Day) -> Part:
    coverage = context.sessions.coverage()
    if not coverage.here:
        return Part(coverage.here, [{} for _ in range(HOURS)], 0, 0)
    query, looked_at = ListQuery(holder.project, until_ms=max(1, day.ends), count=LONGEST_PAGE), 0
    concerned: list[tuple[str, SessionView]] = []
    while page := await context.turns.run(holder, context.sessions.listed, query):
        concerned += [(id, view) for _, id, view in page if next(hourly_windows(view, day), None) is not None]
        looked_at += len(page)
        if len(page) < LONGEST_PAGE or looked_at >= MOST_SESSIONS:
            break
        query = msgspec.structs.replace(query, after=page[-1][:2])
    hours, left_out = await context.activity.count(holder, concerned, day)
    return Part(coverage.here, list(map(dict, hours)), len(concerned), left_out)


def activity(day: Day, hours: Sequence[Tally], sessions: int, left_out: int) -> Activity:
    totals: Tally = Tally()
    for tally in hours:
        totals.update(tally)
    names = sorted(totals.keys() - {""}, key=lambda name: (-totals[name], name))
    tags = [TagHours(name, _seconds(hours, name)) for name in names]
    return Activity(day.text, day.offset_minutes, _seconds(hours, ""), tags, sessions, left_out)


def _seconds(hours: Sequence[Tally], name: str) -> list[float]:
    return [seconds(tally[name]) for tally in hours]


def parse_day(query: dict[str, str], now_ms: int | None = None) -> Day:
    """Return the day of a query, by default that of `now_ms`, or today.

    Raises:
        BadRequest: it is not a day.
    """
    ahead = OFFSET.read(query)
    now = int(time.time() * 1000) if now_ms is None else now_ms
    day = read_date(query, "day", utc_time(now + ahead * MINUTE_MS).date())
    return Day(day.isoformat(), ahead, day_ms(day) - ahead * MINUTE_MS)
