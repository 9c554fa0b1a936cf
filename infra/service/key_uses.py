"""Records in the database when keys were last used: outside of requests, at most once a minute."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog

from app.identity.keys import Keyring
from topics.errors import ServiceError

log = structlog.get_logger("earshot")

NOTE_SECONDS: Final = 60.0


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
