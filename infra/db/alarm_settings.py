"""Rules of alarms and their destinations, in the control plane's database; the caps hold under concurrent writes."""

import base64
import secrets as random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec
import structlog
from sqlalchemy import ColumnElement, Row, Table, and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.changes import note_change
from infra.db.database import Database, Store
from infra.db.schema import alarm_rules, destinations, projects
from topics.alarms.rules import MOST_DESTINATIONS, MOST_RULES, AlarmRule, StoredRule
from topics.errors import BadRequest, Conflict, NotFound, ServiceError
from topics.keys import new_id
from topics.ports.alarms import Destination
from topics.times import DAY_MS

log = structlog.get_logger("infra.db")

#: Noted in `infra.db.changes` when rules change.
RULES: Final = "alarm rules"
NO_PROJECT: Final = "this project was deleted"
NO_RULE: Final = "the project has no such rule"
NO_DESTINATION: Final = "the project has no such destination"
#: Secrets of a webhook that sign at a time: the newest, and those replaced within a day.
MOST_SECRETS: Final = 5

#: Secrets, and when each was replaced.
_Secrets = list[tuple[str, int | None]]
_rule: Final = msgspec.json.Decoder(AlarmRule)
_secrets: Final = msgspec.json.Decoder(_Secrets)
_options: Final = msgspec.json.Decoder(dict[str, str])


async def unheard() -> None: ...


class SqlAlarmSettings(Store):
    """Implements the port `topics.ports.alarms.AlarmSettings`."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        changed: Callable[[], Awaitable[None]] = unheard,
    ) -> None:
        """Await `changed` after rules have changed."""
        super().__init__(database, clock)
        self._changed = changed

    async def rules(self, project: str) -> Sequence[StoredRule]:
        query = select(alarm_rules).where(alarm_rules.c.project_id == project).order_by(alarm_rules.c.name)
        async with self._database.reading() as connection:
            return [stored_rule(row) for row in await connection.execute(query)]

    async def add_rule(self, project: str, rule: AlarmRule) -> StoredRule:
        made = StoredRule(new_id(), project, 1, rule)
        async with self._changing(project, rule.destinations) as connection:
            await _check_count(connection, alarm_rules, project, MOST_RULES, "rules")
            await _check_name(connection, alarm_rules, project, made.id, rule.name, "rule")
            await connection.execute(insert(alarm_rules).values(id=made.id, project_id=project, **_rule_row(made)))
        return made

    async def change_rule(self, project: str, id: str, rule: AlarmRule) -> StoredRule:
        one = _one(alarm_rules, project, id)
        async with self._changing(project, rule.destinations) as connection:
            revision = await connection.scalar(select(alarm_rules.c.revision).where(one))
            if revision is None:
                raise NotFound(NO_RULE)
            await _check_name(connection, alarm_rules, project, id, rule.name, "rule")
            changed = StoredRule(id, project, revision + 1, rule)
            await connection.execute(update(alarm_rules).where(one).values(**_rule_row(changed)))
        return changed

    async def remove_rule(self, project: str, id: str) -> None:
        async with self._changing(project) as connection:
            if not (await connection.execute(delete(alarm_rules).where(_one(alarm_rules, project, id)))).rowcount:
                raise NotFound(NO_RULE)

    async def destinations(self, project: str) -> Sequence[Destination]:
        query = select(destinations).where(destinations.c.project_id == project).order_by(destinations.c.name)
        async with self._database.reading() as connection:
            return [self._destination(row) for row in await connection.execute(query)]

    async def destination(self, project: str, id: str) -> Destination:
        found = await self.find(id)
        if found is None or found.project != project:
            raise NotFound(NO_DESTINATION)
        return found

    async def find(self, id: str) -> Destination | None:
        """Return a destination of any project."""
        async with self._database.reading() as connection:
            row = (await connection.execute(select(destinations).where(destinations.c.id == id))).one_or_none()
        return None if row is None else self._destination(row)

    async def brokers(self) -> Sequence[Destination]:
        """Return the MQTT brokers of all projects that are switched on."""
        query = select(destinations).where(destinations.c.kind == "mqtt", destinations.c.enabled)
        async with self._database.reading() as connection:
            return [self._destination(row) for row in await connection.execute(query)]

    async def add_destination(self, destination: Destination) -> Destination:
        """Store a new destination under a new id; a webhook gets a secret."""
        secrets = (new_secret(),) if destination.kind == "webhook" else ()
        made = msgspec.structs.replace(destination, id=new_id(), secrets=secrets)
        kept = msgspec.json.encode([(one, None) for one in secrets]).decode()
        row = {"id": made.id, "project_id": made.project, "kind": made.kind, "secrets": kept, **_destination_row(made)}
        async with self._writing(made.project) as connection:
            await _check_count(connection, destinations, made.project, MOST_DESTINATIONS, "destinations")
            await _check_name(connection, destinations, made.project, made.id, made.name, "destination")
            await connection.execute(insert(destinations).values(row))
        return made

    async def change_destination(self, destination: Destination) -> Destination:
        """Change all but kind and secrets."""
        project, id = destination.project, destination.id
        async with self._writing(project) as connection:
            await _check_name(connection, destinations, project, id, destination.name, "destination")
            await self._update(connection, _one(destinations, project, id), _destination_row(destination))
        await self._database.scrub()  # It may have had a password.
        return await self.destination(project, id)

    async def remove_destination(self, project: str, id: str) -> None:
        """Remove a destination; raise Conflict if a rule sends to it."""
        of_project = select(alarm_rules.c.rule).where(alarm_rules.c.project_id == project)
        async with self._writing(project) as connection:
            for rule in map(_rule.decode, await connection.scalars(of_project)):
                if id in rule.destinations:
                    raise Conflict(f"the rule {rule.name!r} sends to this destination: change or remove the rule first")
            if not (await connection.execute(delete(destinations).where(_one(destinations, project, id)))).rowcount:
                raise NotFound(NO_DESTINATION)
        await self._database.scrub()

    async def rotate_secret(self, project: str, id: str) -> Destination:
        now, one = self._now(), _one(destinations, project, id)
        async with self._writing(project) as connection:
            row = (await connection.execute(select(destinations).where(one))).one_or_none()
            if row is None:
                raise NotFound(NO_DESTINATION)
            if row.kind != "webhook":
                raise BadRequest("only the secrets of webhooks are rotated")
            secrets = self._signing(row.secrets)
            if len(secrets) >= MOST_SECRETS:
                raise Conflict(f"{MOST_SECRETS} secrets of this destination still sign, the limit: try again in a day")
            secrets = [(new_secret(), None), *((secret, now if at is None else at) for secret, at in secrets)]
            await self._update(connection, one, {"secrets": msgspec.json.encode(secrets).decode()})
        await self._database.scrub()
        return await self.destination(project, id)

    async def switch_off(self, id: str, fault: str) -> None:
        async with self._database.writing() as connection:
            await self._update(connection, destinations.c.id == id, {"enabled": False, "fault": fault})

    @asynccontextmanager
    async def _writing(self, project: str) -> AsyncIterator[AsyncConnection]:
        """Open a transaction in which the project exists. Writers run one at a time, so counts and names are final."""
        async with self._database.writing() as connection:
            if await connection.scalar(select(projects.c.id).where(projects.c.id == project)) is None:
                raise NotFound(NO_PROJECT)
            yield connection

    @asynccontextmanager
    async def _changing(self, project: str, named: Sequence[str] = ()) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that changes rules; check the destinations that a rule names."""
        async with self._writing(project) as connection:
            known = set(await connection.scalars(select(destinations.c.id).where(destinations.c.project_id == project)))
            for id in named:
                if id not in known:
                    raise BadRequest(f"destinations: the project has no destination with the id {id[:60]!r}")
            yield connection
            await note_change(connection, RULES)
        with suppress(ServiceError):  # The change is made.
            await self._changed()

    async def _update(self, connection: AsyncConnection, one: ColumnElement[bool], values: dict[str, Any]) -> None:
        if not (await connection.execute(update(destinations).where(one).values(**values))).rowcount:
            raise NotFound(NO_DESTINATION)

    def _destination(self, row: Row[Any]) -> Destination:
        secrets = tuple(secret for secret, _ in self._signing(row.secrets))
        about = (row.id, row.project_id, row.name, row.kind, row.url, row.enabled, row.fault)
        return Destination(*about, secrets, row.user, row.password, _options.decode(row.options))

    def _signing(self, secrets: str) -> _Secrets:
        """Return the secrets that still sign."""
        since = self._now() - DAY_MS
        return [(secret, at) for secret, at in _secrets.decode(secrets) if at is None or at > since]


def new_secret() -> str:
    """Return a secret as Standard Webhooks has them."""
    return "whsec_" + base64.b64encode(random.token_bytes(32)).decode()


def stored_rule(row: Row[Any]) -> StoredRule:
    """Return the rule in a row; one whose time zone is gone is switched off, without its time of day.

    Raises:
        msgspec.ValidationError: it is of no known form.
    """
    try:
        rule = _rule.decode(row.rule)
    except msgspec.ValidationError as error:
        rule = msgspec.convert(msgspec.json.decode(row.rule) | {"during": None, "enabled": False}, AlarmRule)
        log.warning("rule.off", project=row.project_id, rule=row.id, error=str(error))
    return StoredRule(row.id, row.project_id, row.revision, rule)


def _rule_row(stored: StoredRule) -> dict[str, Any]:
    return {
        "name": stored.rule.name,
        "revision": stored.revision,
        "rule": msgspec.json.encode(stored.rule).decode(),
    }


def _destination_row(one: Destination) -> dict[str, Any]:
    same = {name: getattr(one, name) for name in ("name", "url", "enabled", "fault", "user", "password")}
    return same | {"options": msgspec.json.encode(one.options).decode()}


def _one(table: Table, project: str, id: str) -> ColumnElement[bool]:
    return and_(table.c.id == id, table.c.project_id == project)


async def _check_count(connection: AsyncConnection, table: Table, project: str, most: int, what: str) -> None:
    query = select(func.count()).where(table.c.project_id == project)
    if (await connection.scalar(query) or 0) >= most:
        raise Conflict(f"the project has {most} {what}, its limit: remove one")


async def _check_name(connection: AsyncConnection, table: Table, project: str, id: str, name: str, what: str) -> None:
    taken = select(table.c.id).where(table.c.project_id == project, table.c.name == name, table.c.id != id)
    if await connection.scalar(taken) is not None:
        raise Conflict(f"the project has a {what} {name!r} already: choose another name")
