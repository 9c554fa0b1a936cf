"""Operations on the alarms of a project."""

from typing import Final

import msgspec

from app.alarms.alarm_bodies import LIST_TOKEN, PAGE, Judgement
from app.alarms.alarm_context import AlarmContext
from app.cluster.lists import MissingPart
from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.descriptions import Parameter, fault_of, json_answer, json_body, operation
from app.http.replies import Reply, json_reply
from app.http.turns import holder_of
from app.shared_descriptions import BROKEN, PROJECT_KEY, listing
from app.shown_alarms import DESTINATION, SESSION, SHOWN, ShownAlarm
from topics.alarms.alarms import Alarm
from topics.errors import NotFound
from topics.keys import is_id

_JUDGEMENT: Final = msgspec.json.Decoder(Judgement)
#: Digits of a sequence.
DIGITS: Final = 12
IN_SESSION: Final = (
    Parameter("session_id", "path", str, "Id of the session.", True, SESSION),
    Parameter("sequence", "path", int, "Of the alarm.", True, 4),
)
UNKNOWN: Final = NotFound("there is no such alarm")
NOT_SENT: Final = NotFound("the alarm was not sent to this destination")


@listing(
    "GET /alarms",
    "alarms",
    (),
    first=msgspec.structs.replace(PAGE, next_token=LIST_TOKEN),
    last=PAGE,
    incomplete=msgspec.structs.replace(PAGE, missing=MissingPart(21, 64)),
)
async def list_alarms(call: Call, context: AlarmContext) -> Reply:
    """List the alarms.

    The alarms of the project, newest first. They stay for a week.
    """
    principal = await context.project_keys.authenticate(call)
    return await context.list.page(call, principal.project)


@operation(
    "PATCH /alarms/{session_id}/{sequence}",
    key=PROJECT_KEY,
    parameters=IN_SESSION,
    bodies=json_body(false=Judgement(True)),
    answers=json_answer("The alarm.", false=msgspec.structs.replace(SHOWN, false=True)),
    faults=lambda: (fault_of(decode, _JUDGEMENT, b"[]"), UNKNOWN, *BROKEN),
)
async def judge_alarm(call: Call, context: AlarmContext) -> Reply:
    """Say whether an alarm was false.

    Deliveries that wait go on.
    """
    principal = await context.project_keys.authenticate(call)
    judgement = decode(_JUDGEMENT, await call.body(SMALL_BODY, holder_of(principal)))
    session, sequence = _of_project(call, context, principal.project)
    return _shown(await context.alarms.judge(session, sequence, judgement.false))


@operation(
    "POST /alarms/{session_id}/{sequence}/deliveries/{destination}",
    key=PROJECT_KEY,
    parameters=(*IN_SESSION, Parameter("destination", "path", str, "Id of the destination.", True, DESTINATION)),
    answers=json_answer("The alarm.", sent=SHOWN),
    faults=(UNKNOWN, NOT_SENT, *BROKEN),
)
async def send_again(call: Call, context: AlarmContext) -> Reply:
    """Send an alarm again.

    To one of its destinations, now, with the attempts of a new delivery.
    """
    principal = await context.project_keys.authenticate(call)
    session, sequence = _of_project(call, context, principal.project)
    alarm, destination = context.alarms.alarm(session, sequence), call.path("destination")
    if alarm is not None and all(one.destination != destination for one in alarm.deliveries):
        raise NOT_SENT
    return _shown(await context.alarms.send_again(session, sequence, destination))


def _of_project(call: Call, context: AlarmContext, project: str) -> tuple[str, int]:
    """Return the session and sequence of an alarm of the project.

    Raises:
        NotFound: there is none.
    """
    session, text = call.path("session_id"), call.path("sequence")
    if is_id(session) and text.isascii() and text.isdigit() and len(text) <= DIGITS:
        alarm = context.alarms.alarm(session, int(text))
        if alarm is not None and alarm.project == project:
            return session, int(text)
    raise UNKNOWN


def _shown(alarm: Alarm | None) -> Reply:
    if alarm is None:
        raise UNKNOWN
    return json_reply(ShownAlarm.of(alarm))
