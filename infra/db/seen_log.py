"""Keeps what nodes have seen of their log on Kafka, in the table of secrets, so that a lost log is noticed."""

from collections.abc import Callable
from typing import Final

import msgspec
from sqlalchemy import select

# Its ON CONFLICT DO UPDATE compiles to the same text on SQLite.
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.database import Database
from infra.db.schema import secrets
from topics.ports.seen_log import SeenLog

NAME: Final = "log on kafka"

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(SeenLog).decode


class SqlLogMemory:
    """Implements the port `topics.ports.seen_log.LogMemory`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def seen(self) -> SeenLog | None:
        async with self._database.reading() as connection:
            return await _read(connection)

    async def update(self, change: Callable[[SeenLog | None], SeenLog]) -> SeenLog:
        async with self._database.writing() as connection:
            before = await _read(connection)
            after = change(before)
            if after != before:
                values = {"name": NAME, "value": _encode(after)}
                stored = insert(secrets).values(values)
                await connection.execute(
                    stored.on_conflict_do_update(index_elements=["name"], set_={"value": values["value"]})
                )
            return after


async def _read(connection: AsyncConnection) -> SeenLog | None:
    value = await connection.scalar(select(secrets.c.value).where(secrets.c.name == NAME))
    return None if value is None else _decode(bytes(value))
