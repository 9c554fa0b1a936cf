"""Records in the database when keys were last used, at most once a minute, and reads from it that some have ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from app.identity.keys import Keyring
from infra.db.changes import last_change
from infra.db.database import Database
from infra.db.keyring import ENDED
from topics.errors import ServiceError

log = structlog.get_logger("earshot")

NOTE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 1.0


async def keep_noting(keyrings: Sequence[Keyring[Any]], note: Callable[[Sequence[bytes]], Awaitable[None]]) -> None:
    """Record the used keys every minute; if the database fails, that minute is lost."""
    while True:
        await asyncio.sleep(NOTE_SECONDS)
        digests = [digest for keyring in keyrings for digest in keyring.take_used()]
        if digests:
            try:
                await note(digests)
            except ServiceError as error:
                log.warning("keys.unnoted", keys=len(digests), error=str(error))


async def keep_looking(database: Database, changed: Callable[[], None]) -> None:
    """Call `changed` within a second after another process has ended keys or tokens."""
    seen: bytes | None = None
    while True:
        with suppress(ServiceError):  # `Database.failure` has it.
            async with database.reading() as connection:
                if seen != (seen := await last_change(connection, ENDED)):
                    changed()
        await asyncio.sleep(LOOK_SECONDS)
