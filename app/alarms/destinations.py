"""Operations on the destinations of a project's alarms."""

from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog
from msgspec import UNSET

from app.alarms.alarm_bodies import (
    HOOK,
    PHONE,
    SECRET,
    SHOWN_HOOK,
    DestinationChange,
    DestinationList,
    MadeDestination,
    NewDestination,
    NewSecret,
    ShownDestination,
)
from app.alarms.alarm_context import DOWN, AlarmContext, check_text
from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.descriptions import Answer, Fault, Parameter, fault_of, json_answer, json_body, operation
from app.http.replies import NO_CONTENT, Reply, json_reply, once_reply
from app.http.turns import holder_of
from app.shared_descriptions import PROJECT_KEY
from app.shown_alarms import DESTINATION, ShownDelivery
from topics.alarms.alarms import Delivery
from topics.alarms.rules import MOST_DESTINATIONS
from topics.errors import BadRequest, Conflict, NotFound
from topics.keys import is_id
from topics.ports.alarms import Destination
from topics.ports.directory import Principal

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_NEW: Final = msgspec.json.Decoder(NewDestination)
_CHANGE: Final = msgspec.json.Decoder(DestinationChange)
ID: Final = Parameter("id", "path", str, "Of the destination.", True, DESTINATION)
UNKNOWN: Final = NotFound("the project has no such destination")
TAKEN: Final = Conflict(f"the project has a destination {HOOK.name!r} already: choose another name")
ONCE: Final = {"Cache-Control": "Do not cache: shown once."}
SCHEMES: Final = {"webhook": ("https", "http"), "mqtt": ("mqtts", "mqtt"), "ntfy": ("https", "http")}
AGAIN: Final = BadRequest("password: is needed again, because the URL or the user has changed; null for none")


def destination_faults() -> tuple[Fault, ...]:
    """Return the errors of a destination in a body."""
    return (
        fault_of(check_text, "name", " phone"),
        fault_of(check_url, "mqtt", "https://home.example.org"),
        fault_of(check_url, "webhook", "https://me:secret@home.example.org"),
        BadRequest(
            "url: 192.168.1.4 is not a public address, and deliveries go to public addresses only, unless the operator "
            "allows others (EARSHOT_DELIVERY_NETWORKS)"
        ),
        BadRequest("options: 'colour' is unknown; webhook takes none"),
        TAKEN,
        NotFound("this project was deleted"),
        DOWN,
        500,
    )


@operation(
    "GET /destinations",
    key=PROJECT_KEY,
    answers=json_answer("The destinations by name.", one=DestinationList([SHOWN_HOOK])),
    faults=(DOWN, 500),
)
async def list_destinations(call: Call, context: AlarmContext) -> Reply:
    """List where the project's alarms can be sent.

    Without secrets and passwords.
    """
    principal = await context.project_keys.authenticate(call)
    found = await context.settings.destinations(principal.project)
    return json_reply(DestinationList([ShownDestination.of(one) for one in found]))


@operation(
    "POST /destinations",
    key=PROJECT_KEY,
    bodies=json_body(phone=PHONE, hook=HOOK),
    answers={
        201: Answer("The destination.", (MadeDestination,), {"hook": MadeDestination(SHOWN_HOOK, SECRET)}, headers=ONCE)
    },
    faults=lambda: (
        fault_of(decode, _NEW, b"[]"),
        *destination_faults(),
        Conflict(f"the project has {MOST_DESTINATIONS} destinations, its limit: remove one"),
    ),
)
async def add_destination(call: Call, context: AlarmContext) -> Reply:
    """Add a destination of alarms.

    A webhook gets a secret, which is shown once. Rules name destinations by id.
    """
    principal = await context.project_keys.authenticate(call)
    body = decode(_NEW, await call.body(SMALL_BODY, holder_of(principal)))
    new = Destination("", principal.project, fault=None, **msgspec.structs.asdict(body))
    made = await context.settings.add_destination(_checked(context, new))
    log.info("destination added", project=principal.project, destination=made.id, kind=made.kind)
    secret = made.secrets[0] if made.secrets else None
    return once_reply(MadeDestination(ShownDestination.of(made), secret), 201)


@operation(
    "PUT /destinations/{id}",
    key=PROJECT_KEY,
    parameters=(ID,),
    bodies=json_body(hook=DestinationChange(HOOK.name, HOOK.url)),
    answers=json_answer("The destination.", hook=SHOWN_HOOK),
    faults=lambda: (fault_of(decode, _CHANGE, b"[]"), *destination_faults(), AGAIN, UNKNOWN),
)
async def replace_destination(call: Call, context: AlarmContext) -> Reply:
    """Replace a destination of alarms.

    Its kind and its secret stay. With `enabled` it is switched on again.
    """
    principal = await context.project_keys.authenticate(call)
    body = decode(_CHANGE, await call.body(SMALL_BODY, holder_of(principal)))
    known = await _known(call, context, principal)
    values = msgspec.structs.asdict(body)
    if body.password is UNSET:
        if known.password is not None and (body.url, body.user) != (known.url, known.user):
            raise AGAIN
        del values["password"]
    fault = None if body.enabled else known.fault
    changed = _checked(context, msgspec.structs.replace(known, fault=fault, **values))
    return json_reply(ShownDestination.of(await context.settings.change_destination(changed)))


@operation(
    "DELETE /destinations/{id}",
    key=PROJECT_KEY,
    parameters=(ID,),
    answers={204: Answer("Deleted.")},
    faults=(
        UNKNOWN,
        Conflict("the rule 'smoke alarm' sends to this destination: change or remove the rule first"),
        DOWN,
        500,
    ),
)
async def delete_destination(call: Call, context: AlarmContext) -> Reply:
    """Delete a destination of alarms.

    Deliveries that wait for it fail.
    """
    principal = await context.project_keys.authenticate(call)
    await context.settings.remove_destination(principal.project, _id(call))
    return NO_CONTENT


@operation(
    "POST /destinations/{id}/secret",
    key=PROJECT_KEY,
    parameters=(ID,),
    answers=json_answer("The secret.", secret=NewSecret(SECRET), headers=ONCE),
    faults=(
        BadRequest("only the secrets of webhooks are rotated"),
        UNKNOWN,
        Conflict("5 secrets of this destination still sign, the limit: try again in a day"),
        DOWN,
        500,
    ),
)
async def rotate_secret(call: Call, context: AlarmContext) -> Reply:
    """Rotate the secret of a webhook.

    The new one is shown once. The old one signs too for 24 hours.
    """
    principal = await context.project_keys.authenticate(call)
    rotated = await context.settings.rotate_secret(principal.project, _id(call))
    log.info("secret rotated", project=principal.project, destination=rotated.id)
    return once_reply(NewSecret(rotated.secrets[0]))


@operation(
    "POST /destinations/{id}/test",
    key=PROJECT_KEY,
    parameters=(ID,),
    answers=json_answer(
        "What became of it.",
        delivered=ShownDelivery.of(Delivery(DESTINATION, "delivered", 1, 1_795_329_015_790, 204)),
        failed=ShownDelivery.of(
            Delivery(DESTINATION, "failed", 1, 1_795_329_015_790, 404, "it answered with the status 404")
        ),
    ),
    faults=(UNKNOWN, DOWN, 500),
)
async def send_test(call: Call, context: AlarmContext) -> Reply:
    """Send a test message to a destination.

    Once, and now, also to a destination that is switched off.
    """
    principal = await context.project_keys.authenticate(call)
    destination = await _known(call, context, principal)
    return json_reply(ShownDelivery.of(await context.deliveries.test(destination)))


def check_url(kind: str, url: str) -> None:
    """Check a URL.

    Raises:
        BadRequest: it is not one of the kind, or has a user or password.
    """
    check_text("url", url)
    schemes = SCHEMES[kind]
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise BadRequest(f"url: not a URL of {kind}, such as {schemes[0]}://home.example.org")
    if "@" in parts.netloc:
        raise BadRequest("url: the user and the password have fields of their own")


def _checked(context: AlarmContext, one: Destination) -> Destination:
    for field in "name", "user":
        check_text(field, getattr(one, field) or "")
    if "\0" in (one.password or ""):
        raise BadRequest("password: must not contain NUL")
    check_url(one.kind, one.url)
    context.deliveries.check(one)
    return one


async def _known(call: Call, context: AlarmContext, principal: Principal) -> Destination:
    return await context.settings.destination(principal.project, _id(call))


def _id(call: Call) -> str:
    if not is_id(id := call.path("id")):
        raise UNKNOWN
    return id
