"""Whose key is this: the directory's verdicts, remembered.

A verdict is believed for `seconds`, so that a key change takes at most that long to take effect. While the directory
is down, keys that were good go on working for an hour; keys never seen before cannot be judged. Keys themselves are
not kept, only their SHA-256. Refusals have a store of their own: a flood of bad keys cannot push out good ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import msgspec

from app.lru import Lru
from topics.errors import DirectoryDown, Unauthorized
from topics.ports import Directory, Principal

REMEMBERED: Final = 4096
#: A key that was good is accepted this long past its verdict's end when the directory is down.
GRACE_SECONDS: Final = 3600.0
#: With the directory down, it is asked about one key no more often than this.
RETRY_SECONDS: Final = 5.0


class _Verdict(msgspec.Struct):
    principal: Principal | None
    #: Monotonic times: when the directory is asked again, and when the verdict is worth nothing.
    ask_again: float
    worthless: float


class KeyCache:
    """Answers for the directory; calls about one key share one question."""

    def __init__(self, directory: Directory, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._seconds = seconds
        self._clock = clock
        self._good: Lru[bytes, _Verdict] = Lru(REMEMBERED)
        self._bad: Lru[bytes, _Verdict] = Lru(REMEMBERED)
        self._asking: dict[bytes, asyncio.Task[Principal | None]] = {}

    async def principal(self, key: str) -> Principal:
        """Return whom the key speaks for.

        Raises:
            Unauthorized: no key, or an invalid one.
            DirectoryDown: the key is not remembered and the directory does not answer.
        """
        if not key:
            raise Unauthorized("API key required")
        digest = sha256(key.encode("utf-8", "surrogateescape")).digest()
        known = self._good.get(digest) or self._bad.get(digest)
        if known is None or self._clock() >= known.ask_again:
            principal = await self._ask(digest, key, known)
        else:
            principal = known.principal
        if principal is None:
            raise Unauthorized("Invalid API key")
        return principal

    async def _ask(self, digest: bytes, key: str, known: _Verdict | None) -> Principal | None:
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._directory.project(key))
            task.add_done_callback(lambda task: self._asked(digest, task))
        try:
            # A caller that hangs up must not cancel the question of the others.
            principal = await asyncio.shield(task)
        except DirectoryDown as down:
            return self._excuse(known, down)
        self._remember(digest, principal)
        return principal

    def _asked(self, digest: bytes, task: asyncio.Task[Principal | None]) -> None:
        del self._asking[digest]
        if not task.cancelled():
            task.exception()  # seen here, in case every caller hung up

    def _excuse(self, known: _Verdict | None, down: DirectoryDown) -> Principal:
        now = self._clock()
        if known is None or known.principal is None or now >= known.worthless:
            raise DirectoryDown("API key verification failed") from down
        known.ask_again = now + RETRY_SECONDS
        return known.principal

    def _remember(self, digest: bytes, principal: Principal | None) -> None:
        self._good.drop(digest)
        self._bad.drop(digest)
        end = self._clock() + self._seconds
        store = self._bad if principal is None else self._good
        store.put(digest, _Verdict(principal, end, end + GRACE_SECONDS))
