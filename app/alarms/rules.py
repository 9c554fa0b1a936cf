"""Operations on the rules of a project."""

from typing import Final

import msgspec
import structlog

from app.alarms.alarm_bodies import NIGHT, SHOWN_SMOKE, SMOKE, RuleList, ShownRule, shown_rule
from app.alarms.alarm_context import DOWN, AlarmContext, check_text
from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.descriptions import Answer, Fault, Parameter, fault_of, json_answer, json_body, operation
from app.http.replies import NO_CONTENT, Reply, json_reply
from app.http.turns import holder_of
from app.shared_descriptions import PROJECT_KEY
from app.shown_alarms import RULE
from topics.alarms.rules import MOST_RULES, AlarmRule
from topics.alarms.tags import check_tags
from topics.errors import BadRequest, Conflict, NotFound
from topics.keys import is_id
from topics.ports.directory import Principal

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_RULE: Final = msgspec.json.Decoder(AlarmRule)
_NO_ZONE: Final = b'{"name":"a","tags":["b"],"during":{"begins":"22:00","ends":"06:00","zone":"Europe/Atlantis"}}'
ID: Final = Parameter("id", "path", str, "Of the rule.", True, RULE)
UNKNOWN: Final = NotFound("the project has no such rule")
DELETED: Final = NotFound("this project was deleted")
TAKEN: Final = Conflict(f"the project has a rule {SMOKE.name!r} already: choose another name")
WITH_TAGS: Final = (
    "`tags` may name tags of the model, own sounds, and classes: the `category` of tags in `GET /models`. The rule "
    "holds from the next window on; other nodes follow within a second."
)


def rule_faults() -> tuple[Fault, ...]:
    """Return the errors of a rule in a body."""
    return (
        fault_of(decode, _RULE, b"[]"),
        fault_of(decode, _RULE, b'{"name":"smoke alarm"}'),
        fault_of(decode, _RULE, _NO_ZONE),
        fault_of(check_text, "name", " smoke"),
        fault_of(check_tags, ["Smok_alarm"], SMOKE.tags, {}),
        DOWN,
        500,
    )


STORING: Final = (
    BadRequest("destinations: the project has no destination with the id 'x'"),
    TAKEN,
    DELETED,
)


@operation(
    "GET /alarm_rules",
    key=PROJECT_KEY,
    answers=json_answer("The rules by name.", one=RuleList([SHOWN_SMOKE])),
    faults=(DOWN, 500),
)
async def list_alarm_rules(call: Call, context: AlarmContext) -> Reply:
    """List the project's rules of alarms."""
    principal = await context.project_keys.authenticate(call)
    return json_reply(RuleList([shown_rule(one) for one in await context.settings.rules(principal.project)]))


@operation(
    "POST /alarm_rules",
    key=PROJECT_KEY,
    bodies=json_body(smoke=SMOKE, night=NIGHT),
    answers={201: Answer("The rule.", (ShownRule,), {"smoke": SHOWN_SMOKE})},
    faults=lambda: (
        *rule_faults(),
        *STORING,
        Conflict(f"the project has {MOST_RULES} rules, its limit: remove one"),
    ),
)
async def add_alarm_rule(call: Call, context: AlarmContext) -> Reply:
    """Add a rule of alarms.

    {WITH_TAGS}
    """
    principal = await context.project_keys.authenticate(call)
    rule = await rule_of(call, context, principal)
    made = await context.settings.add_rule(principal.project, rule)
    log.info("rule added", project=principal.project, rule=made.id, when=rule.when)
    return json_reply(shown_rule(made), 201)


@operation(
    "PUT /alarm_rules/{id}",
    key=PROJECT_KEY,
    parameters=(ID,),
    bodies=json_body(smoke=SMOKE, night=NIGHT),
    answers=json_answer("The rule.", smoke=SHOWN_SMOKE),
    faults=lambda: (*rule_faults(), *STORING, UNKNOWN),
)
async def replace_alarm_rule(call: Call, context: AlarmContext) -> Reply:
    """Replace a rule of alarms.

    What it found begins anew. {WITH_TAGS}
    """
    principal = await context.project_keys.authenticate(call)
    rule = await rule_of(call, context, principal, id := _id(call))
    return json_reply(shown_rule(await context.settings.change_rule(principal.project, id, rule)))


@operation(
    "DELETE /alarm_rules/{id}",
    key=PROJECT_KEY,
    parameters=(ID,),
    answers={204: Answer("Deleted.")},
    faults=(UNKNOWN, DOWN, 500),
)
async def delete_alarm_rule(call: Call, context: AlarmContext) -> Reply:
    """Delete a rule of alarms.

    Its alarms stay.
    """
    principal = await context.project_keys.authenticate(call)
    await context.settings.remove_rule(principal.project, _id(call))
    return NO_CONTENT


async def rule_of(call: Call, context: AlarmContext, principal: Principal, id: str = "") -> AlarmRule:
    """Return the rule in a body, which may replace the one with an id.

    Raises:
        BadRequest: it is malformed, or names an unknown tag that the other one does not name.
    """
    rule = decode(_RULE, await call.body(SMALL_BODY, holder_of(principal)))
    check_text("name", rule.name)
    tags, classes = context.sessions.official_tags(), context.sessions.classes()
    own: list[str] = []
    if not set(rule.tags).issubset((*tags, *classes)):
        own = [sound.name for sound in await context.own_sounds.sounds(principal.project)]
        if id:  # A sound that was deleted hinders nobody from switching off its rule.
            rules = await context.settings.rules(principal.project)
            own += [tag for one in rules if one.id == id for tag in one.rule.tags]
    check_tags(rule.tags, tags, classes, own)
    return rule


def _id(call: Call) -> str:
    if not is_id(id := call.path("id")):
        raise UNKNOWN
    return id
