"""Operations of the operator's interface: each is one call of the port, between JSON and JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec

from app.admin.rows import LineRow, TotalRow, as_csv, is_month, paged
from app.admin.wire import (
    IssuedKey,
    MadeOrganization,
    MadeProject,
    NewOrganization,
    NewProject,
    Plan,
    ShownOrganization,
    ShownProject,
)
from app.http.bodies import SMALL_BODY, decode
from app.http.operation import Call
from app.http.queries import parameters
from app.http.replies import JSON, NO_CONTENT, Reply, StreamReply, json_bytes
from app.http.streaming import replied
from topics.errors import BadRequest, NotFound
from topics.jobs.options import Service
from topics.ports.administration import Administration, UsageFilter

Pages = AsyncGenerator[Sequence[msgspec.Struct], None]

CSV: Final = (b"content-type", b"text/csv; charset=utf-8; header=present")
_ONCE: Final = (b"cache-control", b"no-store")

_NEW_ORGANIZATION: Final = msgspec.json.Decoder(NewOrganization)
_NEW_PROJECT: Final = msgspec.json.Decoder(NewProject)
_PLAN: Final = msgspec.json.Decoder(Plan)


async def list_organizations(call: Call, administration: Administration) -> Reply:
    """GET /organizations."""
    return _json([ShownOrganization.of(one) for one in await administration.organizations()])


async def create_organization(call: Call, administration: Administration) -> Reply:
    """POST /organizations: the answer has the key, which nothing shows again."""
    wanted = decode(_NEW_ORGANIZATION, await call.body(SMALL_BODY))
    made, key = await administration.create_organization(wanted.name)
    return _secret(MadeOrganization(ShownOrganization.of(made), key), 201)


async def rotate_organization_key(call: Call, administration: Administration) -> Reply:
    """POST /organizations/{reference}/key: the old key is revoked."""
    return _secret(IssuedKey(await administration.rotate_organization_key(_reference(call, "/key"))))


async def delete_organization(call: Call, administration: Administration) -> Reply:
    """DELETE /organizations/{reference}: with its projects, keys and speakers."""
    await administration.delete_organization(_reference(call))
    return NO_CONTENT


async def list_projects(call: Call, administration: Administration) -> Reply:
    """GET /projects?organization=."""
    given = _parameters(call, "organization")
    return _json([ShownProject.of(one) for one in await administration.projects(given.get("organization"))])


async def create_project(call: Call, administration: Administration) -> Reply:
    """POST /projects: the answer has the key, which nothing shows again."""
    wanted = decode(_NEW_PROJECT, await call.body(SMALL_BODY))
    made, key = await administration.create_project(wanted.name, wanted.organization)
    return _secret(MadeProject(ShownProject.of(made), key), 201)


async def rotate_project_key(call: Call, administration: Administration) -> Reply:
    """POST /projects/{reference}/key: the old key is revoked."""
    return _secret(IssuedKey(await administration.rotate_project_key(_reference(call, "/key"))))


async def plan_project(call: Call, administration: Administration) -> Reply:
    """PUT /projects/{reference}/plan."""
    reference = _reference(call, "/plan")
    wanted = decode(_PLAN, await call.body(SMALL_BODY))
    await administration.plan(reference, wanted.free_seconds)
    return NO_CONTENT


async def delete_project(call: Call, administration: Administration) -> Reply:
    """DELETE /projects/{reference}."""
    await administration.delete_project(_reference(call))
    return NO_CONTENT


async def read_usage(call: Call, administration: Administration) -> Reply | StreamReply:
    """GET /usage: totals by month, project and service, or the lines of the ledger; JSON or CSV.

    The JSON has a line break after some rows each, never within one, so that it can be read as it comes.
    """
    given = _parameters(call, "organization", "project", "service", "month", "lines", "format")
    period = UsageFilter(given.get("organization"), given.get("project"), _service(given), _month(given))
    accepted = "csv" if b"text/csv" in call.header(b"accept") else "json"
    form = _choice(given, "format", accepted, "json", "csv")
    kind: type[msgspec.Struct]
    pages: Pages
    if _choice(given, "lines", "false", "true", "false") == "true":
        kind, pages = LineRow, ([LineRow.of(one) for one in page] async for page in administration.lines(period))
    else:
        kind, pages = TotalRow, paged([TotalRow.of(one) for one in await administration.totals(period)])
    if form == "csv":
        return await replied((text.encode("utf-8", "replace") async for text in as_csv(kind, pages)), CSV)
    return await replied(_array(pages), JSON)


async def _array(pages: Pages) -> AsyncGenerator[bytes, None]:
    before = b"["
    async for page in pages:
        yield before + b",".join(map(msgspec.json.encode, page))
        before = b",\n"
    yield b"]" if before != b"[" else b"[]"


def _parameters(call: Call, *known: str) -> dict[str, str]:
    given = parameters(call.scope)
    for name in given:
        if name not in known:
            # A misspelt filter would silently give the usage of everybody.
            raise BadRequest(f"{name[:64]}: no parameter here; there are {', '.join(known)}")
    return given


def _service(given: dict[str, str]) -> Service | None:
    name = given.get("service")
    return None if name is None else Service(_choice(given, "service", "", *Service))


def _month(given: dict[str, str]) -> str | None:
    month = given.get("month")
    if month is not None and not is_month(month):
        raise BadRequest(f"month: {month[:64]!r} is no month such as 2026-11")
    return month


def _choice(given: dict[str, str], name: str, default: str, *choices: str) -> str:
    value = given.get(name, default)
    if value not in choices:
        raise BadRequest(f"{name}: must be one of {', '.join(choices)}")
    return value


def _reference(call: Call, end: str = "") -> str:
    """Return the id or name of the path, before its end.

    Raises:
        NotFound: the path ends otherwise.
    """
    reference = call.path("reference")
    if not reference.endswith(end):
        raise NotFound("Not Found")
    return reference.removesuffix(end)


def _json(content: object, status: int = 200) -> Reply:
    return json_bytes(msgspec.json.encode(content), status)


def _secret(content: object, status: int = 200) -> Reply:
    reply = _json(content, status)
    reply.headers.append(_ONCE)
    return reply
