"""Rules and destinations of all projects as this node knows them, at most some seconds old."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from cachetools import TTLCache
from sqlalchemy import select

from infra.db.alarm_settings import RULES, SqlAlarmSettings, stored_rule
from infra.db.changes import last_change
from infra.db.database import Database
from infra.db.schema import alarm_rules
from topics.alarms.rules import StoredRule
from topics.errors import ServiceError
from topics.ports.alarms import Destination

log = structlog.get_logger("infra.service")

LOOK_SECONDS: Final = 1.0
#: How long a destination is remembered, and how many are.
KEPT_SECONDS: Final = 2.0
MOST_KEPT: Final = 10_000


class KnownRules:
    """Implements the port `topics.ports.alarms.Rules`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looking = asyncio.Lock()
        self._noted: bytes | None = b""
        #: By id; a rule with the same revision is not decoded again.
        self._rules: dict[str, StoredRule] = {}
        self._of: dict[str, list[StoredRule]] = {}

    def of(self, project: str) -> Sequence[StoredRule]:
        return self._of.get(project, ())

    async def look(self) -> None:
        """Read the rules if they have changed.

        Raises:
            DirectoryDown: the database does not answer.
        """
        async with self._looking, self._database.reading() as connection:
            noted = await last_change(connection, RULES)
            if noted == self._noted:
                return
            rows = (await connection.execute(select(alarm_rules).order_by(alarm_rules.c.id))).all()
        known, self._rules, of = self._rules, {}, defaultdict(list)
        for row in rows:
            rule = known.get(row.id)
            if rule is None or rule.revision != row.revision:
                try:
                    rule = stored_rule(row)
                except msgspec.ValidationError as error:
                    log.warning("rule.unreadable", project=row.project_id, rule=row.id, error=str(error))
                    continue
            self._rules[row.id] = rule
            of[rule.project].append(rule)
        self._noted, self._of = noted, of

    async def keep_looking(self) -> None:
        """Look every second; while the database is away, the known rules go on."""
        while True:
            with suppress(ServiceError):  # `Database.failure` has it.
                await self.look()
            await asyncio.sleep(LOOK_SECONDS)


class KnownDestinations:
    """Implements the port `topics.ports.alarms.Destinations`."""

    def __init__(self, database: Database) -> None:
        self._settings = SqlAlarmSettings(database)
        self.brokers = self._settings.brokers
        self._known: TTLCache[str, Destination | None] = TTLCache(MOST_KEPT, KEPT_SECONDS)

    async def find(self, id: str) -> Destination | None:
        if id not in self._known:
            self._known[id] = await self._settings.find(id)
        return self._known.get(id)

    async def switch_off(self, id: str, fault: str) -> None:
        await self._settings.switch_off(id, fault)
        self._known.pop(id, None)
