"""The usage ledger: what was analysed for whom, one line for each service of a job, written once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, func, select

# Its ON CONFLICT DO NOTHING is the same text on SQLite.
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.database import Database
from infra.db.schema import LONGEST_MODEL, projects, usage
from topics.accounts import Period, Total
from topics.jobs.options import Service
from topics.ports import Charge

EVER: Final = Period()


class SqlLedger:
    """The port `topics.ports.Ledger`, and reading what was written. Every call may raise DirectoryDown."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, charges: Sequence[Charge]) -> None:
        """Write charges, all or none; one whose (job, service) is there already stays as it is."""
        if charges:
            rows = [_row(as_stored(charge)) for charge in charges]
            async with self._database.writing() as connection:
                await connection.execute(insert(usage).on_conflict_do_nothing(), rows)

    async def totals(self, period: Period = EVER) -> list[Total]:
        """Return what was used, by month, project and service; organization and project are ids."""
        group = (usage.c.month, usage.c.project_id, projects.c.name, usage.c.organization_id, usage.c.service)
        query = (
            select(*group, usage.c.model, func.count(), func.sum(usage.c.audio_ms))
            .outerjoin_from(usage, projects, projects.c.id == usage.c.project_id)
            .where(*_of(period))
            .group_by(*group, usage.c.model)
            .order_by(*group, usage.c.model)
        )
        totals: dict[tuple[str, str, str], Total] = {}
        async with self._database.reading() as connection:
            for month, owner, name, above, service, model, jobs, audio_ms in await connection.execute(query):
                key = (month, owner, service)
                before = totals.get(key, Total(month, owner, name, above, Service(service), 0, 0, ()))
                totals[key] = msgspec.structs.replace(
                    before,
                    jobs=before.jobs + jobs,
                    audio_ms=before.audio_ms + int(audio_ms),
                    models=(*before.models, model),
                )
        return list(totals.values())

    async def lines(self, period: Period = EVER) -> list[Charge]:
        """Return single lines in order of time; organization and project are ids."""
        columns = (usage.c[name] for name in ("job_id", "service", "project_id", "organization_id"))
        query = select(*columns, usage.c.audio_ms, usage.c.model, usage.c.at).where(*_of(period))
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(usage.c.at, usage.c.job_id, usage.c.service))
            return [Charge(job, Service(service), *rest) for job, service, *rest in rows]


async def used_ms(connection: AsyncConnection, project: str, month: str) -> int:
    """Return the milliseconds of audio that a project used in a month, all services together."""
    total = select(func.sum(usage.c.audio_ms)).where(*_of(Period(project=project, month=month)))
    return int(await connection.scalar(total) or 0)


def month_of(ms: int) -> str:
    """Return the calendar month (UTC) of a time in milliseconds since 1970."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m")


def as_stored(charge: Charge) -> Charge:
    """Return a charge as the ledger keeps it: an engine may name its model as it likes, the column has its limits."""
    name = charge.model.replace("\0", "").encode()[:LONGEST_MODEL].decode(errors="ignore")
    return msgspec.structs.replace(charge, model=name)


def _row(charge: Charge) -> dict[str, object]:
    return {
        "job_id": charge.job,
        "service": charge.service.value,
        "project_id": charge.project,
        "organization_id": charge.organization,
        "audio_ms": charge.audio_ms,
        "model": charge.model,
        "at": charge.at_ms,
        "month": month_of(charge.at_ms),
    }


def _of(period: Period) -> list[ColumnElement[bool]]:
    wanted = {
        usage.c.organization_id: period.organization,
        usage.c.project_id: period.project,
        usage.c.service: period.service,
        usage.c.month: period.month,
    }
    return [column == value for column, value in wanted.items() if value is not None]
