"""Secrets that all nodes of a deployment share, made by the first node that needs them, and the name of its log.

Every call may raise DirectoryDown.
"""

import secrets as random
from typing import Final

from sqlalchemy import insert, select

from infra.db.database import Database
from infra.db.schema import secrets

BYTES: Final = 32
PAGE_TOKENS: Final = "page tokens"
#: Signs the metadata that nodes exchange in Kafka's consumer group.
NODE_METADATA: Final = "node metadata"
#: The name of the embedded log that belongs to this database.
LOG: Final = "log"
#: The number of the last change of a database that notes them.
CHANGES: Final = "changes"


async def token_secret(database: Database, name: str = PAGE_TOKENS) -> bytes:
    """Return 32 bytes for signing, the same on all nodes and after a restart."""
    query = select(secrets.c.value).where(secrets.c.name == name)
    async with database.reading() as connection:
        if secret := await connection.scalar(query):
            return bytes(secret)
    async with database.writing() as connection:
        # Another node may have been first. Writers run one at a time, so the value is final now.
        if secret := await connection.scalar(query):
            return bytes(secret)
        secret = random.token_bytes(BYTES)
        await connection.execute(insert(secrets).values(name=name, value=secret))
        return secret


async def log_name(database: Database) -> bytes | None:
    """Return the name of the embedded log that belongs to a database, or None if there was no log yet."""
    async with database.reading() as connection:
        name = await connection.scalar(select(secrets.c.value).where(secrets.c.name == LOG))
    return None if name is None else bytes(name)


async def note_log_name(database: Database, name: bytes) -> None:
    """Record which embedded log belongs to a database; allowed once."""
    async with database.writing() as connection:
        await connection.execute(insert(secrets).values(name=LOG, value=name))
