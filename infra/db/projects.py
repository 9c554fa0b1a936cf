"""A project's view of itself: its key, plan and daily usage."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import and_, func, select, update

from infra.db import keyring
from infra.db.accounts import choices_of
from infra.db.database import Store
from infra.db.ledger import month_of, used_ms
from infra.db.schema import keys, organizations, projects, usage
from topics.errors import NotFound, Unauthorized
from topics.ports.ledger import MeteredService
from topics.ports.projects import DailyUsage, ProjectAccount, ProjectKey
from topics.times import DAY_MS, utc_time

DELETED: Final = "this project was deleted"
#: Keys in one statement.
PAGE: Final = 500


class SqlProjects(Store):
    """Implements the port `topics.ports.projects.Projects`."""

    async def account(self, project: str) -> ProjectAccount:
        own = projects.c.free_seconds, projects.c.choices
        shown = (keys.c.shown, keys.c.created_at, keys.c.last_used_at)
        query = (
            select(projects.c.name, organizations.c.name, projects.c.created_at, *own, *shown)
            .join_from(projects, organizations, organizations.c.id == projects.c.organization_id)
            .join(keys, and_(keys.c.project_id == projects.c.id, keys.c.revoked_at.is_(None)))
            .where(projects.c.id == project)
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                raise NotFound(DELETED)
            name, organization, created_at, free_seconds, choices, *key = row
            used = await used_ms(connection, project, month_of(self._now()))
        plan = free_seconds, used, choices_of(choices)
        return ProjectAccount(project, name, organization, created_at, ProjectKey(*key), *plan)

    async def renew_key(self, key: str) -> str:
        async with self._database.writing() as connection:
            owner = await keyring.owner_of(connection, key)
            if owner is None or owner.project is None:
                raise Unauthorized("Invalid API key: only the project's key itself makes a new one")
            return await keyring.issue(connection, owner, self._now())

    async def choose(self, project: str, change: Mapping[str, Any]) -> None:
        row = projects.c.id == project
        # Writers run one at a time, so choices that another request makes are not lost.
        async with self._database.writing() as connection:
            known = await connection.scalar(select(projects.c.choices).where(row))
            if known is None:
                raise NotFound(DELETED)
            choices = msgspec.json.encode(msgspec.structs.replace(choices_of(known), **change)).decode()
            await connection.execute(update(projects).where(row).values(choices=choices))

    async def daily_usage(self, project: str, since: int, until: int) -> list[DailyUsage]:
        day = usage.c.at // DAY_MS
        query = (
            select(day, usage.c.service, func.count(usage.c.job_id.distinct()), func.sum(usage.c.audio_ms))
            # The index has months before times.
            .where(usage.c.project_id == project, usage.c.month.between(month_of(since), month_of(until - 1)))
            .where(usage.c.at >= since, usage.c.at < until)
            .group_by(day, usage.c.service)
            .order_by(day, usage.c.service)
        )
        async with self._database.reading() as connection:
            rows = await connection.execute(query)
            return [
                DailyUsage(utc_time(number * DAY_MS).date().isoformat(), MeteredService(service), jobs, int(audio_ms))
                for number, service, jobs, audio_ms in rows
            ]

    async def note_used(self, digests: Sequence[bytes]) -> None:
        """Record that the keys with these digests are in use now."""
        now = self._now()
        async with self._database.writing() as connection:
            for start in range(0, len(digests), PAGE):
                some = keys.c.digest.in_(digests[start : start + PAGE])
                await connection.execute(update(keys).where(some).values(last_used_at=now))
