"""The heat map of a day for all sessions of a project, from all nodes."""

import asyncio
from typing import Final

import msgspec

from app.cluster.lists import NOBODY, MissingPart, parts_of
from app.cluster.takeovers import FORWARDED
from app.days import DAY_PARAMETERS, Day, day_faults, parse_day, sessions_on
from app.http.call import Call
from app.http.descriptions import json_answer, operation
from app.http.queries import query_parameters
from app.http.replies import Reply, json_reply
from app.http.turns import holder_of
from app.sessions.activity import CROWDED, DAY, DAY_TEXT, activity
from app.sessions.activity_counter import HOURS, Tally, hourly_windows
from app.sessions.session_context import SessionContext
from app.shared_descriptions import BROKEN, PROJECT_KEY
from topics.errors import Unavailable
from topics.turns import Holder


class Part(msgspec.Struct, frozen=True):
    """One node's part of a day, as nodes exchange it."""

    partitions: frozenset[int]
    hours: list[dict[str, int]]
    sessions: int
    left_out: int


TEXT: Final = f"{DAY_TEXT} Sessions on nodes that do not answer are missing."
_part: Final = msgspec.json.Decoder(Part)


@operation(
    "GET /activity",
    key=PROJECT_KEY,
    parameters=DAY_PARAMETERS,
    answers=json_answer(
        "The day.", morning=DAY, incomplete=msgspec.structs.replace(DAY, left_out=3, missing=MissingPart(21, 64))
    ),
    faults=lambda: (*day_faults(), Unavailable(NOBODY), CROWDED, *BROKEN),
)
async def project_activity(call: Call, context: SessionContext) -> Reply:
    """Read a day of all sessions.

    All sessions of the project, without its jobs. {TEXT}
    """
    holder = holder_of(await context.project_keys.authenticate(call))
    day = parse_day(query_parameters(call.scope))
    if call.header(FORWARDED):
        return json_reply(await _own_part(context, holder, day))
    urls = sorted(context.sessions.coverage().elsewhere)
    asked = parts_of(call, context.list.forwarder, urls, _part.decode)
    own, others = await asyncio.gather(_own_part(context, holder, day), asked)
    parts = [own, *others]
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
    concerned = await sessions_on(
        day, context.sessions, context.turns, holder, lambda view: next(hourly_windows(view, day), None) is not None
    )
    hours, left_out = await context.activity.count(holder, concerned, day)
    return Part(coverage.here, list(map(dict, hours)), len(concerned), left_out)
