"""Operations of the operator's interface; each decodes JSON, calls the port once and encodes the result."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from app.admin.admin_bodies import (
    IssuedKey,
    MadeOrganization,
    MadeProject,
    NewOrganization,
    NewProject,
    Plan,
    ShownOrganization,
    ShownProject,
)
from app.admin.admin_context import AdminContext
from app.admin.usage_rows import LineRow, TotalRow, as_csv, is_month, paged
from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.queries import query_parameters
from app.http.replies import JSON, NO_CONTENT, Reply, StreamReply, json_reply, once_reply
from app.http.streaming import reply_in_pieces
from topics.errors import BadRequest, NotFound
from topics.ports.administration import UsageFilter
from topics.ports.ledger import Charge, MeteredService

Pages = AsyncGenerator[Sequence[msgspec.Struct], None]

CSV: Final = (b"content-type", b"text/csv; charset=utf-8; header=present")
#: The parameters of `read_usage`, with the allowed values of enumerated ones.
USAGE: Final = ("organization", "project", "service", "month", "lines", "format")
BOOLEANS: Final = ("false", "true")
FORMATS: Final = ("json", "csv")

_NEW_ORGANIZATION: Final = msgspec.json.Decoder(NewOrganization)
_NEW_PROJECT: Final = msgspec.json.Decoder(NewProject)
_PLAN: Final = msgspec.json.Decoder(Plan)


async def list_organizations(call: Call, context: AdminContext) -> Reply:
    return json_reply([ShownOrganization.of(one) for one in await context.administration.organizations()])


async def create_organization(call: Call, context: AdminContext) -> Reply:
    """POST /organizations: only this answer contains the key."""
    body = decode(_NEW_ORGANIZATION, await call.body(SMALL_BODY))
    organization, key = await context.administration.create_organization(body.name)
    return once_reply(MadeOrganization(ShownOrganization.of(organization), key), 201)


async def rotate_organization_key(call: Call, context: AdminContext) -> Reply:
    """POST /organizations/{reference}/key: revokes the old key."""
    organization = await context.administration.find_organization(_reference(call, "/key"))
    key = await context.administration.rotate_organization_key(organization)
    context.changed_keys.organization(organization)
    return once_reply(IssuedKey(key))


async def delete_organization(call: Call, context: AdminContext) -> Reply:
    """DELETE /organizations/{reference}: also deletes its projects, keys and speakers."""
    organization = await context.administration.find_organization(_reference(call))
    await context.administration.delete_organization(organization)
    context.changed_keys.organization(organization, deleted=True)
    return NO_CONTENT


async def list_projects(call: Call, context: AdminContext) -> Reply:
    """GET /projects?organization=."""
    query = _query(call, "organization")
    return json_reply(
        [ShownProject.of(one) for one in await context.administration.projects(query.get("organization"))]
    )


async def create_project(call: Call, context: AdminContext) -> Reply:
    """POST /projects: only this answer contains the key."""
    body = decode(_NEW_PROJECT, await call.body(SMALL_BODY))
    project, key = await context.administration.create_project(body.name, body.organization)
    return once_reply(MadeProject(ShownProject.of(project), key), 201)


async def rotate_project_key(call: Call, context: AdminContext) -> Reply:
    """POST /projects/{reference}/key: revokes the old key."""
    project = await context.administration.find_project(_reference(call, "/key"))
    key = await context.administration.rotate_project_key(project)
    context.changed_keys.project(project, ended=True)
    return once_reply(IssuedKey(key))


async def plan_project(call: Call, context: AdminContext) -> Reply:
    """PUT /projects/{reference}/plan."""
    reference = _reference(call, "/plan")
    body = decode(_PLAN, await call.body(SMALL_BODY))
    project = await context.administration.find_project(reference)
    await context.administration.plan(project, body.free_seconds)
    context.changed_keys.project(project)
    return NO_CONTENT


async def delete_project(call: Call, context: AdminContext) -> Reply:
    """DELETE /projects/{reference}."""
    project = await context.administration.find_project(_reference(call))
    await context.administration.delete_project(project)
    context.changed_keys.project(project, ended=True)
    return NO_CONTENT


async def list_nodes(call: Call, context: AdminContext) -> Reply:
    """GET /nodes: the facts, progress and problems of each node."""
    return await context.nodes.reply(call)


async def read_usage(call: Call, context: AdminContext) -> Reply | StreamReply:
    """GET /usage: totals by month, project and service, or the lines of the ledger; JSON or CSV.

    The JSON has a line break after every few rows, never within a row, so that clients can read it as it arrives.
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
