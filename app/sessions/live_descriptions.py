"""The operations that listen, and those of a day, as the documents describe them."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from app.cluster.lists import NOBODY, MissingPart
from app.http.descriptions import Description, Parameter, event_answer, fault_of, integer_query, json_answer
from app.http.operation import Handler
from app.http.server_sent import HEARTBEAT_SECONDS, Named, named_event
from app.job_progress import ServiceProgress
from app.sessions import activity, live
from app.sessions.activity_counter import COUNT_SECONDS, HOURS, PROJECT_CROWDED
from app.sessions.answers import PROJECT_EVENTS, SESSION_EVENTS, Level, LiveEnd, LiveJob, LiveSession, LiveWindow, Strip
from app.sessions.examples import ID, LISTED
from app.sessions.socket_events import TYPES, wanted_types
from app.sessions.socket_messages import SOUND_EVENTS, Loudness
from app.sessions.waiting import NO_SUCH_SESSION, SESSION, SESSION_KEY
from app.shared_descriptions import BROKEN, PROJECT_KEY
from app.windows import SenseEventTag
from topics.errors import Unavailable
from topics.jobs.options import Service

HEARD: Final = LiveWindow(
    session_id=ID,
    window=17,
    start_time=8.5,
    end_time=9.5,
    tags=[SenseEventTag("Dog_bark", 0.9408)],
    top=[SenseEventTag("Dog_bark", 0.9408), SenseEventTag("Knock", 0.3112)],
    level=Level(-22.4, -9.1),
    strip=Strip(9.0, bytes(3)),
)
NOW: Final = LiveSession(**msgspec.structs.asdict(LISTED), next_window=17, window_size=1, window_hop=0.5)
JOB: Final = LiveJob(ID, "processing", 0.5, {Service.SOUND: ServiceProgress("running", 0.5)}, cursor="2")
LIVE_TEXT: Final = (
    f"Server-sent events, with a comment every {HEARTBEAT_SECONDS:g} s of silence. Levels and spectrograms are made "
    "only while somebody listens: earlier windows have none. Windows are read from storage: a slow reader gets them "
    f"all, later, after an event `behind`. A node takes {live.LISTENERS} listeners, "
    f"{live.PROJECT_LISTENERS} per project."
)


def _events(*events: Named, number: int | None = None) -> str:
    return b"".join(named_event(one, number if isinstance(one, LiveWindow) else None) for one in events).decode()


def _types(*kinds: type[Named]) -> dict[str, Any]:
    """Return the types of events by name."""
    return {kind.event: kind for kind in kinds}


DAY: Final = activity.Activity(
    "2026-11-22",
    60,
    [0.0] * 9 + [3600.0] * 3 + [0.0] * 12,
    [activity.TagHours("Dog_bark", [0.0] * 10 + [12.5, 3.0] + [0.0] * 12)],
    1,
)
DAY_PARAMETERS: Final = (
    Parameter("day", "query", activity.DayText, "The day; by default today.", example="2026-11-22"),
    integer_query(activity.OFFSET),
)
DAY_TEXT: Final = (
    "A window counts until the next one. Its time is the session's opening plus its place in the audio. A node spends "
    f"{COUNT_SECONDS:g} s at most: `left_out` is the number of sessions it did not finish; repeat the request to get "
    f"further. Each node counts the {activity.MOST_SESSIONS} newest sessions until the end of the day."
)
CROWDED: Final = Unavailable(PROJECT_CROWDED)
DAY_FAULTS: Final = (
    fault_of(activity.parse_day, {"day": "yesterday"}, 0),
    fault_of(activity.parse_day, {activity.OFFSET.name: "900"}, 0),
)
FULL: Final = Unavailable(live.FULL)
#: At the place of the sessions.
SESSION_OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    live.follow_session: Description(
        summary="Listen to a session",
        text=f"Each window as it is analysed, to the end of the session. {LIVE_TEXT} The id of an event `window` is "
        "its number, so a client that reconnects with `Last-Event-ID` misses none.",
        key=SESSION_KEY,
        parameters=(
            SESSION,
            integer_query(live.FROM),
            Parameter(
                "Last-Event-ID",
                "header",
                str,
                "Id of the last event you read, or a live socket's cursor: later events follow.",
                example="16",
            ),
            Parameter(
                live.EVENTS,
                "query",
                Annotated[str, msgspec.Meta(pattern=r"^[a-z.,]*$")],
                f"Comma-separated types of a live socket ({', '.join(TYPES)}). The stream then has these events as on "
                "the socket, with cursors as ids.",
            ),
            Parameter("after", "query", str, "With `events`: events after this cursor; `start` for all."),
        ),
        answers=event_answer(
            {**_types(*SESSION_EVENTS), **SOUND_EVENTS, "level": Loudness},
            {"one window": _events(NOW, HEARD, LiveEnd(ID, 18), number=17)},
        ),
        faults=(fault_of(live.FROM.judge, "now"), fault_of(wanted_types, "all"), NO_SUCH_SESSION, FULL, *BROKEN),
    ),
    activity.session_activity: Description(
        summary="Read a day of a session",
        text=f"How long each sound was reported in each of {HOURS} hours. {DAY_TEXT}",
        key=SESSION_KEY,
        parameters=(SESSION, *DAY_PARAMETERS),
        answers=json_answer("The day.", morning=DAY),
        faults=(*DAY_FAULTS, NO_SUCH_SESSION, CROWDED, *BROKEN),
    ),
}

#: Of all sessions of a project.
PROJECT_OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    live.follow_project: Description(
        summary="Listen to all sessions and jobs of the project",
        text="Windows and sounds of all its sessions and the progress of its jobs, on all nodes, without end. "
        f"{LIVE_TEXT} An event `session` comes first for each of the newest open sessions, and for others before "
        "their first event; windows before its `next_window` are in the status. If a session moves to another node, a "
        "window may come twice or be missing; the status has it. An event `job` comes first for each of the newest "
        "unfinished jobs, and then at each progress; its result is in the job.",
        key=PROJECT_KEY,
        parameters=(
            Parameter("strips", "query", str, "The session of the project whose spectrograms are sent.", example=""),
        ),
        answers=event_answer(
            {**_types(*SESSION_EVENTS), **SOUND_EVENTS, **_types(*PROJECT_EVENTS)},
            {"one window": _events(NOW, HEARD), "a job": _events(JOB)},
        ),
        faults=(FULL, *BROKEN),
    ),
    activity.project_activity: Description(
        summary="Read a day of all sessions",
        text=f"All sessions of the project, without its jobs. {DAY_TEXT} Sessions on nodes that do not answer are "
        "missing.",
        key=PROJECT_KEY,
        parameters=DAY_PARAMETERS,
        answers=json_answer(
            "The day.", morning=DAY, incomplete=msgspec.structs.replace(DAY, left_out=3, missing=MissingPart(21, 64))
        ),
        faults=(*DAY_FAULTS, Unavailable(NOBODY), CROWDED, *BROKEN),
    ),
}
