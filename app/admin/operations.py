"""Operations of the operator's interface; each decodes JSON, calls the port once and encodes the result."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

import msgspec

from app.admin.admin_bodies import (
    BARN,
    FARM,
    KEY,
    IssuedKey,
    MadeOrganization,
    MadeProject,
    NewOrganization,
    NewProject,
    Plan,
    ShownOrganization,
    ShownProject,
)
from app.admin.guard import INVALID, MISSING, AdminContext
from app.admin.usage_rows import MONTH, LineRow, TotalRow, as_csv, is_month, paged
from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.descriptions import (
    Answer,
    Description,
    Fault,
    Key,
    Parameter,
    fault_of,
    json_answer,
    json_body,
    operation,
)
from app.http.queries import query_parameters
from app.http.replies import JSON, NO_CONTENT, Reply, StreamReply, json_reply, once_reply
from app.http.streaming import reply_in_pieces
from topics.errors import BadRequest, DirectoryDown, NotFound, Unauthorized
from topics.ports.administration import UsageFilter
from topics.ports.ledger import Charge, MeteredService

Pages = AsyncGenerator[Sequence[msgspec.Struct], None]

CSV: Final = (b"content-type", b"text/csv; charset=utf-8; header=present")
#: The parameters of `read_usage`, with the allowed values of enumerated ones.
USAGE: Final = ("organization", "project", "service", "month", "lines", "format")
BOOLEANS: Final = ("false", "true")
FORMATS: Final = ("json", "csv")

OPERATOR_KEY: Final = Key("operatorKey")
_NEW_ORGANIZATION: Final = msgspec.json.Decoder(NewOrganization)
_NEW_PROJECT: Final = msgspec.json.Decoder(NewProject)
_PLAN: Final = msgspec.json.Decoder(Plan)

TOTAL: Final = TotalRow("2026-11", "Barn", MeteredService.SOUND, 3, 42.5, "yamnet@0123abcd", BARN.id, FARM.id)
LINE: Final = LineRow(
    "2026-11-22T06:51:02.117+00:00", "4bG4kCD3", MeteredService.SOUND, 14.0, "yamnet@0123abcd", BARN.id, FARM.id
)
TABLE: Final = (
    "month,project,service,jobs,audio_seconds,models,project_id,organization_id\n"
    f"2026-11,Barn,sound_event_detection,3,42.500,yamnet@0123abcd,{BARN.id},{FARM.id}\n"
)
ONCE: Final = {"Cache-Control": "Do not cache: shown once."}
FAULTS: Final[tuple[Fault, ...]] = (
    Unauthorized(MISSING),
    Unauthorized(INVALID),
    DirectoryDown("the database does not answer"),
    500,
)
MISSPELT: Final = BadRequest("month: '2026-13' is not a month such as 2026-11")
UNKNOWN: Final = NotFound("there is no project 'Barn'")
#: No two organizations have one name.
_AMBIGUOUS: Final[Mapping[str, tuple[Fault, ...]]] = {
    "project": (BadRequest("there are several projects 'Barn': give the id"),)
}
_TEXTS: Final[Mapping[str, tuple[Any, str]]] = {
    "organization": (str, "Id or name."),
    "project": (str, "Id or name."),
    "service": (MeteredService, "One service of jobs, or `audio_session`."),
    "month": (Annotated[str, msgspec.Meta(pattern=MONTH)], "Calendar month (UTC), such as 2026-11."),
    "lines": (Literal[BOOLEANS], "Single lines of the ledger instead of totals."),
    "format": (Literal[FORMATS], "By default `csv` if the header Accept asks for it, otherwise `json`."),
}


GOES: Final = (
    "Its usage stays in the ledger. Keys, links and ids of sessions and jobs are refused here at once, on other nodes "
    "within five seconds. The nodes then delete the sessions and jobs."
)


def _named(what: str) -> Parameter:
    return Parameter("reference", "path", str, f"Id or name of the {what}.", required=True, example="Barn")


def _filter(name: str) -> Parameter:
    return Parameter(name, "query", *_TEXTS[name])


def _key(of: str) -> Description:
    return operation(
        f"POST /{of}s/{{reference:path}}",
        key=OPERATOR_KEY,
        end="/key",
        parameters=(_named(of),),
        answers=json_answer("The key.", key=IssuedKey(KEY), headers=ONCE),
        faults=(*FAULTS, *_AMBIGUOUS.get(of, ()), UNKNOWN),
    )


def _deletion(of: str) -> Description:
    return operation(
        f"DELETE /{of}s/{{reference:path}}",
        key=OPERATOR_KEY,
        parameters=(_named(of),),
        answers={204: Answer("Deleted.")},
        faults=(*FAULTS, *_AMBIGUOUS.get(of, ()), UNKNOWN),
    )


@operation(
    "GET /organizations",
    key=OPERATOR_KEY,
    answers={200: Answer("By name.", (list[ShownOrganization],), {"one": [FARM]})},
    faults=FAULTS,
)
async def list_organizations(call: Call, context: AdminContext) -> Reply:
    """List organizations."""
    return json_reply([ShownOrganization.of(one) for one in await context.administration.organizations()])


@operation(
    "POST /organizations",
    key=OPERATOR_KEY,
    bodies=json_body(farm=NewOrganization("Farm")),
    answers={201: Answer("It, and its key.", (MadeOrganization,), {"farm": MadeOrganization(FARM, KEY)}, headers=ONCE)},
    faults=lambda: (*FAULTS, fault_of(decode, _NEW_ORGANIZATION, b"{}")),
)
async def create_organization(call: Call, context: AdminContext) -> Reply:
    """Create an organization.

    The answer has its key, which is shown only once.
    """
    body = decode(_NEW_ORGANIZATION, await call.body(SMALL_BODY))
    organization, key = await context.administration.create_organization(body.name)
    return once_reply(MadeOrganization(ShownOrganization.of(organization), key), 201)


@_key("organization")
async def rotate_organization_key(call: Call, context: AdminContext) -> Reply:
    """Issue a new key of an organization.

    The old key stops here at once, and on other nodes when their cached check of it expires.
    """
    organization = await context.administration.find_organization(_reference(call, "/key"))
    key = await context.administration.rotate_organization_key(organization)
    context.changed_keys.organization(organization)
    return once_reply(IssuedKey(key))


@_deletion("organization")
async def delete_organization(call: Call, context: AdminContext) -> Reply:
    """Delete an organization.

    With its projects and all they have, its key and its speakers. {GOES}
    """
    organization = await context.administration.find_organization(_reference(call))
    await context.administration.delete_organization(organization)
    context.changed_keys.organization(organization, deleted=True)
    return NO_CONTENT


@operation(
    "GET /projects",
    key=OPERATOR_KEY,
    parameters=(_filter("organization"),),
    answers={200: Answer("By name.", (list[ShownProject],), {"one": [BARN]})},
    faults=(*FAULTS, BadRequest("name: not a parameter here; use one of organization"), UNKNOWN),
)
async def list_projects(call: Call, context: AdminContext) -> Reply:
    """List projects."""
    query = _query(call, "organization")
    return json_reply(
        [ShownProject.of(one) for one in await context.administration.projects(query.get("organization"))]
    )


@operation(
    "POST /projects",
    key=OPERATOR_KEY,
    bodies=json_body(barn=NewProject("Barn", "Farm")),
    answers={201: Answer("It, and its key.", (MadeProject,), {"barn": MadeProject(BARN, KEY)}, headers=ONCE)},
    faults=lambda: (*FAULTS, fault_of(decode, _NEW_PROJECT, b"{}"), UNKNOWN),
)
async def create_project(call: Call, context: AdminContext) -> Reply:
    """Create a project.

    The answer has its key, which is shown only once.
    """
    body = decode(_NEW_PROJECT, await call.body(SMALL_BODY))
    project, key = await context.administration.create_project(body.name, body.organization)
    return once_reply(MadeProject(ShownProject.of(project), key), 201)


@_key("project")
async def rotate_project_key(call: Call, context: AdminContext) -> Reply:
    """Issue a new key of a project.

    The old key stops here at once, and on other nodes when their cached check of it expires.
    """
    project = await context.administration.find_project(_reference(call, "/key"))
    key = await context.administration.rotate_project_key(project)
    context.changed_keys.project(project, ended=True)
    return once_reply(IssuedKey(key))


@operation(
    "PUT /projects/{reference:path}",
    key=OPERATOR_KEY,
    end="/plan",
    parameters=(_named("project"),),
    bodies=json_body(free=Plan(1200), unlimited=Plan(None)),
    answers={204: Answer("Set.")},
    faults=lambda: (*FAULTS, fault_of(decode, _PLAN, b"{}"), UNKNOWN),
)
async def plan_project(call: Call, context: AdminContext) -> Reply:
    """Set the plan of a project.

    Seconds of audio that its jobs may analyse in a calendar month (UTC); null for any amount.
    """
    reference = _reference(call, "/plan")
    body = decode(_PLAN, await call.body(SMALL_BODY))
    project = await context.administration.find_project(reference)
    await context.administration.plan(project, body.free_seconds)
    context.changed_keys.project(project)
    return NO_CONTENT


@_deletion("project")
async def delete_project(call: Call, context: AdminContext) -> Reply:
    """Delete a project.

    With its key, sessions, jobs and own sounds. {GOES}
    """
    project = await context.administration.find_project(_reference(call))
    await context.administration.delete_project(project)
    context.changed_keys.project(project, ended=True)
    return NO_CONTENT


@operation(
    "GET /usage",
    key=OPERATOR_KEY,
    parameters=tuple(map(_filter, USAGE)),
    answers={
        200: (
            Answer("Totals, or lines.", (list[TotalRow], list[LineRow]), {"totals": [TOTAL], "lines": [LINE]}),
            Answer("The same as a table.", (str,), {"totals": TABLE}, media="text/csv"),
        )
    },
    faults=(*FAULTS, MISSPELT, UNKNOWN),
)
async def read_usage(call: Call, context: AdminContext) -> Reply | StreamReply:
    """Read the usage.

    Totals by month, project and service, or the lines of the ledger. Unknown parameters are refused: a misspelt filter
    would return everybody's usage.
    """
    query = _query(call, *USAGE)
    period = UsageFilter(query.get("organization"), query.get("project"), _service(query), _month(query))
    accepted = "csv" if b"text/csv" in call.header(b"accept") else "json"
    form = _choice(query, "format", accepted, *FORMATS)
    kind: type[msgspec.Struct]
    pages: Pages
    if _choice(query, "lines", "false", *BOOLEANS) == "true":
        kind, pages = LineRow, _line_rows(context.administration.lines(period))
    else:
        kind, pages = TotalRow, paged([TotalRow.of(one) for one in await context.administration.totals(period)])
    if form == "csv":
        return await reply_in_pieces(_csv(kind, pages), CSV)
    return await reply_in_pieces(_array(pages), JSON)


async def _line_rows(lines: AsyncGenerator[Sequence[Charge], None]) -> Pages:
    async with aclosing(lines):
        async for page in lines:
            yield [LineRow.of(one) for one in page]


async def _csv(kind: type[msgspec.Struct], pages: Pages) -> AsyncGenerator[bytes, None]:
    async with aclosing(pages), aclosing(as_csv(kind, pages)) as texts:
        async for text in texts:
            yield text.encode("utf-8", "replace")


async def _array(pages: Pages) -> AsyncGenerator[bytes, None]:
    before = b"["
    async with aclosing(pages):
        async for page in pages:
            yield before + b",".join(map(msgspec.json.encode, page))
            before = b",\n"
    yield b"]" if before != b"[" else b"[]"


def _query(call: Call, *names: str) -> dict[str, str]:
    query = query_parameters(call.scope)
    for name in query:
        if name not in names:
            # A misspelt filter would silently return everybody's usage.
            raise BadRequest(f"{name[:64]}: not a parameter here; use one of {', '.join(names)}")
    return query


def _service(query: dict[str, str]) -> MeteredService | None:
    name = query.get("service")
    return None if name is None else MeteredService(_choice(query, "service", "", *MeteredService))


def _month(query: dict[str, str]) -> str | None:
    month = query.get("month")
    if month is not None and not is_month(month):
        raise BadRequest(f"month: {month[:64]!r} is not a month such as 2026-11")
    return month


def _choice(query: dict[str, str], name: str, default: str, *choices: str) -> str:
    value = query.get(name, default)
    if value not in choices:
        raise BadRequest(f"{name}: must be one of {', '.join(choices)}")
    return value


def _reference(call: Call, end: str = "") -> str:
    """Return the id or name in the path, without the suffix `end`.

    Raises:
        NotFound: the path has another suffix.
    """
    reference = call.path("reference")
    if not reference.endswith(end):
        raise NotFound("Not Found")
    return reference.removesuffix(end)
