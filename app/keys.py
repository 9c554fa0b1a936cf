"""Whose key is this: the directory's verdicts on keys of one kind, remembered.

A verdict is believed for `seconds`, so that a key change takes at most that long to take effect. While the directory
is down, keys that were good go on working for an hour; keys never seen before cannot be judged. Keys themselves are
not kept, only their SHA-256. Refusals have a store of their own: a flood of bad keys cannot push out good ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import msgspec

from app.lru import Lru
from topics.errors import DirectoryDown, Unauthorized

T = TypeVar("T")

REMEMBERED: Final = 4096
#: A key that was good is accepted this long past its verdict's end when the directory is down.
GRACE_SECONDS: Final = 3600.0
#: With the directory down, it is asked about one key no more often than this.
RETRY_SECONDS: Final = 5.0


class Wording(msgspec.Struct, frozen=True):
    """What a part of the interface says where there is no good key."""

    missing: str
    #: To keys that nobody has, or has any more.
    unknown: str
    #: While the directory does not answer.
    unverified: str


PROJECT_WORDING: Final = Wording("API key required", "Invalid API key", "API key verification failed")
ORGANIZATION_WORDING: Final = Wording(
    "x_org_key required", "organization not found", "organization key verification failed"
)


class _Verdict(msgspec.Struct, Generic[T]):
    holder: T | None
    #: Monotonic times: when the directory is asked again, and when the verdict is worth nothing.
    ask_again: float
    worthless: float


class Keyring(Generic[T]):
    """Answers for the directory; calls about one key share one question.

    `ask` is the directory's question for keys of this kind: whose is it, None for nobody's, or DirectoryDown.
    """

    def __init__(
        self,
        ask: Callable[[str], Coroutine[Any, Any, T | None]],
        wording: Wording,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask_directory = ask
        self._wording = wording
        self._seconds = seconds
        self._clock = clock
        self._good: Lru[bytes, _Verdict[T]] = Lru(REMEMBERED)
        self._bad: Lru[bytes, _Verdict[T]] = Lru(REMEMBERED)
        self._asking: dict[bytes, asyncio.Task[T | None]] = {}

    async def holder(self, key: str) -> T:
        """Return whom the key speaks for.

        Raises:
            Unauthorized: no key, or an invalid one.
            DirectoryDown: the key is not remembered and the directory does not answer.
        """
        if not key:
            raise Unauthorized(self._wording.missing)
        digest = sha256(key.encode("utf-8", "surrogateescape")).digest()
        known = self._good.get(digest) or self._bad.get(digest)
        if known is None or self._clock() >= known.ask_again:
            holder = await self._ask(digest, key, known)
        else:
            holder = known.holder
        if holder is None:
            raise Unauthorized(self._wording.unknown)
        return holder

    async def _ask(self, digest: bytes, key: str, known: _Verdict[T] | None) -> T | None:
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._ask_directory(key))
            task.add_done_callback(lambda task: self._asked(digest, task))
        try:
            # A caller that hangs up must not cancel the question of the others.
            holder = await asyncio.shield(task)
        except DirectoryDown as down:
            return self._excuse(known, down)
        self._remember(digest, holder)
        return holder

    def _asked(self, digest: bytes, task: asyncio.Task[T | None]) -> None:
        del self._asking[digest]
        if not task.cancelled():
            task.exception()  # seen here, in case every caller hung up

    def _excuse(self, known: _Verdict[T] | None, down: DirectoryDown) -> T:
        now = self._clock()
        if known is None or known.holder is None or now >= known.worthless:
            raise DirectoryDown(self._wording.unverified) from down
        known.ask_again = now + RETRY_SECONDS
        return known.holder

    def _remember(self, digest: bytes, holder: T | None) -> None:
        self._good.drop(digest)
        self._bad.drop(digest)
        end = self._clock() + self._seconds
        store = self._bad if holder is None else self._good
        store.put(digest, _Verdict(holder, end, end + GRACE_SECONDS))
