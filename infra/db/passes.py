"""Passes: what a browser is given in place of a key that nobody can read any more. They end by themselves.

A pass is `pass_` and, signed, organization (24) | project (24, NUL without) | end in seconds since 1970 (8) | the first
8 bytes of the digest of the live key. It carries the rights of that key, and ends with it: so a rotation ends all
passes too.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.keyring import Owner, live
from infra.db.schema import keys
from topics.signing import Signer

PREFIX: Final = "pass_"
SECONDS: Final = 12 * 3600
_BODY: Final = struct.Struct(">24s24sQ8s")
#: With this many the text needs no padding.
_MAC_BYTES: Final = 17


class Pass(msgspec.Struct, frozen=True):
    """Whom a pass speaks for, and the beginning of the digest of the key that it ends with."""

    owner: Owner
    digest: bytes


class PassSigner:
    """Makes and reads the passes of one deployment."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._signer = Signer(secret, b"pass", _MAC_BYTES)
        self._clock = clock

    async def issue(self, connection: AsyncConnection, owner: Owner) -> str | None:
        """Return a pass that speaks for `owner`, None where no key does."""
        digest = await connection.scalar(select(keys.c.digest).where(live(owner)))
        if digest is None:
            return None
        ids = (owner.organization.encode("ascii"), (owner.project or "").encode("ascii"))
        return PREFIX + self._signer.seal(_BODY.pack(*ids, int(self._clock()) + SECONDS, digest[:8]))

    def read(self, text: str) -> Pass | None:
        """Return what a pass says, None where it is none of ours or has ended."""
        body = self._signer.open(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else None
        if body is None:
            return None
        organization, project, end, digest = _BODY.unpack(body)
        if self._clock() >= end:
            return None
        return Pass(Owner(organization.decode("ascii"), project.rstrip(b"\0").decode("ascii") or None), digest)


async def is_live(connection: AsyncConnection, passed: Pass) -> bool:
    """Return whether the key that a pass was made beside still opens."""
    digest = await connection.scalar(select(keys.c.digest).where(live(passed.owner)))
    return digest is not None and bytes(digest[:8]) == passed.digest
