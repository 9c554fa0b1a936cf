"""The usage ledger: one line for each service of a job or step of a session, written once."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, func, select, tuple_

# Its ON CONFLICT DO NOTHING compiles to the same text on SQLite.
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.database import Database
from infra.db.schema import LONGEST_MODEL, projects, usage
from topics.ports.administration import UsageFilter, UsageTotal
from topics.ports.ledger import Charge, MeteredService
from topics.times import utc_time

EVER: Final = UsageFilter()
#: Lines read, and held, at a time.
PAGE: Final = 500
#: Order by time, which is also order by month; an index by project and one overall have this order.
_ORDER: Final = (usage.c.month, usage.c.at, usage.c.job_id, usage.c.service)


class SqlLedger:
    """Implements the port `topics.ports.ledger.Ledger`, and reads lines. Every call may raise DirectoryDown."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, charges: Sequence[Charge]) -> None:
        """Write charges, all or none; a charge whose (job, service, step) exists is left unchanged."""
        if charges:
            rows = [_row(as_stored(charge)) for charge in charges]
            async with self._database.writing() as connection:
                await connection.execute(insert(usage).on_conflict_do_nothing(), rows)

    async def totals(self, period: UsageFilter = EVER) -> list[UsageTotal]:
        """Return the usage by month, project and service; organization and project are ids."""
        group = (usage.c.month, usage.c.project_id, projects.c.name, usage.c.organization_id, usage.c.service)
        query = (
            select(*group, usage.c.model, func.count(usage.c.job_id.distinct()), func.sum(usage.c.audio_ms))
            .outerjoin_from(usage, projects, projects.c.id == usage.c.project_id)
            .where(*_of(period))
            .group_by(*group, usage.c.model)
            .order_by(*group, usage.c.model)
        )
        totals: dict[tuple[str, str, str], UsageTotal] = {}
        async with self._database.reading() as connection:
            for month, owner, name, above, service, model, jobs, audio_ms in await connection.execute(query):
                key = (month, owner, service)
                before = totals.get(key, UsageTotal(month, owner, name, above, MeteredService(service), 0, 0, ()))
                totals[key] = msgspec.structs.replace(
                    before,
                    jobs=before.jobs + jobs,
                    audio_ms=before.audio_ms + int(audio_ms),
                    models=(*before.models, model),
                )
        return list(totals.values())

    async def lines(self, period: UsageFilter = EVER) -> AsyncGenerator[Sequence[Charge], None]:
        """Yield single lines in order of time, `PAGE` at a time; organization and project are ids.

        No connection is held between pages, so a slow reader blocks nobody.
        """
        columns = (usage.c[name] for name in ("job_id", "service", "project_id", "organization_id"))
        query = (
            select(*columns, usage.c.audio_ms, usage.c.model, usage.c.at, usage.c.step).order_by(*_ORDER).limit(PAGE)
        )
        query = query.where(*_of(msgspec.structs.replace(period, month=None)))
        after = (period.month or "", -1, "", "")
        if period.month is not None:
            # With `=`, SQLite would not use the index to find `after`.
            query = query.where(usage.c.month <= period.month)
        while True:
            async with self._database.reading() as connection:
                rows = await connection.execute(query.where(tuple_(*_ORDER) > after))
                page = [Charge(job, MeteredService(service), *more) for job, service, *more in rows]
            if page:
                yield page
            if len(page) < PAGE:
                return
            last = page[-1]
            after = (month_of(last.at_ms), last.at_ms, last.job, last.service)


async def used_ms(connection: AsyncConnection, project: str, month: str) -> int:
    """Return the milliseconds of audio that a project used in a month, over all services of jobs."""
    of_jobs = usage.c.service != MeteredService.SESSION.value
    total = select(func.sum(usage.c.audio_ms)).where(of_jobs, *_of(UsageFilter(project=project, month=month)))
    return int(await connection.scalar(total) or 0)


def month_of(ms: int) -> str:
    """Return the calendar month (UTC) of a time in milliseconds since 1970."""
    return utc_time(ms).strftime("%Y-%m")


def as_stored(charge: Charge) -> Charge:
    """Return a charge as the ledger stores it: engines name models freely, but the column has a limit."""
    name = charge.model.replace("\0", "").encode()[:LONGEST_MODEL].decode(errors="ignore")
    return msgspec.structs.replace(charge, model=name)


def _row(charge: Charge) -> dict[str, object]:
    return {
        "job_id": charge.job,
        "service": charge.service.value,
        "step": charge.step,
        "project_id": charge.project,
        "organization_id": charge.organization,
        "audio_ms": charge.audio_ms,
        "model": charge.model,
        "at": charge.at_ms,
        "month": month_of(charge.at_ms),
    }


def _of(period: UsageFilter) -> list[ColumnElement[bool]]:
    filters = {
        usage.c.organization_id: period.organization,
        usage.c.project_id: period.project,
        usage.c.service: period.service,
        usage.c.month: period.month,
    }
    return [column == value for column, value in filters.items() if value is not None]
