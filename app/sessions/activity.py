"""The heat map of a day: how long each sound was reported in each hour, for one session or all of a project.

A window counts for the time up to the next one. Its time of day is the opening of the session plus its position in the
audio.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from app.cluster.lists import MissingPart
from app.days import DAY_PARAMETERS, MOST_SESSIONS, Day, DayText, day_faults, parse_day
from app.http.call import Call
from app.http.descriptions import json_answer, operation
from app.http.queries import query_parameters
from app.http.replies import Reply, json_reply
from app.sessions.activity_counter import COUNT_SECONDS, HOURS, PROJECT_CROWDED, Tally
from app.sessions.session_context import SessionContext
from app.sessions.waiting import NO_SUCH_SESSION, SESSION, SESSION_KEY, allowed_session, session_view
from app.shared_descriptions import BROKEN
from topics.errors import Unavailable
from topics.geometry import seconds


class TagHours(msgspec.Struct, frozen=True):
    """A sound, and for how long it was reported in each hour of the day."""

    name: str
    seconds: Annotated[list[float], msgspec.Meta(min_length=HOURS, max_length=HOURS)]


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


DAY: Final = Activity(
    "2026-11-22",
    60,
    [0.0] * 9 + [3600.0] * 3 + [0.0] * 12,
    [TagHours("Dog_bark", [0.0] * 10 + [12.5, 3.0] + [0.0] * 12)],
    1,
)
DAY_TEXT: Final = (
    "A window counts until the next one. Its time is the session's opening plus its place in the audio. A node spends "
    f"{COUNT_SECONDS:g} s at most: `left_out` is the number of sessions it did not finish; repeat the request to get "
    f"further. Each node counts the {MOST_SESSIONS} newest sessions until the end of the day."
)
CROWDED: Final = Unavailable(PROJECT_CROWDED)


@operation(
    "GET /audio_sessions/{session_id}/activity",
    key=SESSION_KEY,
    parameters=(SESSION, *DAY_PARAMETERS),
    answers=json_answer("The day.", morning=DAY),
    faults=lambda: (*day_faults(), NO_SUCH_SESSION, CROWDED, *BROKEN),
)
async def session_activity(call: Call, context: SessionContext) -> Reply:
    """Read a day of a session.

    How long each sound was reported in each of {HOURS} hours. {DAY_TEXT}
    """
    session, view = await allowed_session(call, context)
    day = parse_day(query_parameters(call.scope))
    hours, left_out = await context.activity.count(call.holder, [(session, view)], day)
    session_view(context, session)  # Fails if the session was deleted meanwhile.
    counted = any(tally for tally in hours)
    return json_reply(activity(day, hours, int(counted), left_out))


def activity(day: Day, hours: Sequence[Tally], sessions: int, left_out: int) -> Activity:
    totals: Tally = Tally()
    for tally in hours:
        totals.update(tally)
    names = sorted(totals.keys() - {""}, key=lambda name: (-totals[name], name))
    tags = [TagHours(name, _seconds(hours, name)) for name in names]
    return Activity(day.text, day.offset_minutes, _seconds(hours, ""), tags, sessions, left_out)


def _seconds(hours: Sequence[Tally], name: str) -> list[float]:
    return [seconds(tally[name]) for tally in hours]
