"""The database's verdicts on keys of one kind, remembered.

A verdict is believed for `seconds`. So a key change by another node takes effect here within that time, and one by this
node at once. While the directory is down, keys that were good go on working for an hour; keys that were never seen
before cannot be verified. Keys themselves are not kept, only their SHA-256. Refusals have a store of their own: a flood
of bad keys cannot push out good ones.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import msgspec
from cachetools import LRUCache

from app.http.addresses import customer
from topics import apikeys
from topics.errors import DirectoryDown, EarshotError, Unauthorized, Unavailable

T = TypeVar("T")

REMEMBERED_KEYS: Final = 4096
#: A key that was good is accepted this long past its verdict's end when the directory is down.
GRACE_SECONDS: Final = 3600.0
#: While the directory is down, questions about one key are at least this far apart.
RETRY_SECONDS: Final = 5.0
#: A verdict on the key of an open stream is asked for at most this often.
STREAM_SECONDS: Final = 1.0
#: Questions at the same time about keys that are not known to be good.
ASKING: Final = 64
#: All addresses together may try this many times what one may.
ALL: Final = 10
#: Seconds' worth of tries that may come at once.
BURST: Final = 5


LINK_ENDED: Final = "the link has ended, or is of another job"


class KeyHeader(msgspec.Struct, frozen=True):
    """A kind of key: where requests carry it, and the answer if there is no valid one."""

    name: str
    header: bytes
    #: The message to a request without a key.
    missing: str
    #: The answer to a key that is unknown or revoked.
    unknown: str
    #: While the directory does not answer.
    unverified: str


PROJECT: Final = KeyHeader(
    "project", b"x-api-key", "API key required", "Invalid API key", "API key verification failed"
)
#: The token of a link, in the query.
AUDIO: Final = KeyHeader("audio_link", b"", LINK_ENDED, LINK_ENDED, "link verification failed")
ORGANIZATION: Final = KeyHeader(
    "organization",
    b"x-org-key",
    "x_org_key required",
    "organization not found",
    "organization key verification failed",
)


class KeyRateLimiter:
    """Limits look-ups of unknown keys, for each address (IPv6: each /64) and in total.

    Only unknown keys count, so devices that come back together do not hinder each other.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Allow tries for each address, `ALL` times as many in total, and `BURST` seconds' worth at once."""
        self._clock = clock
        self._rate = per_second
        #: Tries left, and as of when, by address; the entry None is the total.
        self._left: LRUCache[str | None, tuple[float, float]] = LRUCache(REMEMBERED_KEYS)

    def check(self, address: str) -> None:
        """Raise Unavailable if an address, or everybody together, has no try left."""
        for whose in (None, customer(address)):
            if self._tries_left(whose) < 1:
                raise Unavailable("too many unknown keys were tried")

    def count(self, address: str) -> None:
        """Record a failed attempt."""
        now = self._clock()
        for whose in (None, customer(address)):
            self._left[whose] = self._tries_left(whose) - 1, now

    def _tries_left(self, whose: str | None) -> float:
        rate = self._rate if whose is not None else self._rate * ALL
        left, at = self._left.get(whose, (math.inf, 0.0))
        return min(rate * BURST, left + (self._clock() - at) * rate)


class _Verdict(msgspec.Struct, Generic[T]):
    holder: T | None
    #: Monotonic times: when the directory is asked again, and when the verdict is worth nothing.
    ask_again: float
    worthless_at: float


class _Streams(msgspec.Struct, eq=False):
    task: asyncio.Task[None]
    waiters: set[asyncio.Future[None]] = msgspec.field(default_factory=set)


class Keyring(Generic[T]):
    """Answers for the directory; calls about one key share one question.

    `ask` asks the directory who holds a key of this kind: it returns None for a key without a holder, and may
    raise DirectoryDown.
    """

    def __init__(
        self,
        kind: KeyHeader,
        ask: Callable[[str], Coroutine[Any, Any, T | None]],
        seconds: float,
        tries: KeyRateLimiter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = kind
        self._tries = tries
        self._ask_directory = ask
        self._seconds = seconds
        self._clock = clock
        self._good: LRUCache[bytes, _Verdict[T]] = LRUCache(REMEMBERED_KEYS)
        self._bad: LRUCache[bytes, _Verdict[T]] = LRUCache(REMEMBERED_KEYS)
        self._asking: dict[bytes, asyncio.Task[T | None]] = {}
        #: Open streams of each key.
        self._streams: dict[bytes, _Streams] = {}
        #: Set, and replaced, when verdicts are forgotten.
        self._forgotten = asyncio.Event()
        self._used: set[bytes] = set()

    async def holder(self, key: str, address: str = "", ahead: float = 0.0) -> T:
        """Return the holder of a key that an address sent, asking again `ahead` seconds before a verdict ends.

        Raises:
            Unauthorized: no key, or an invalid one.
            Unavailable: too many keys that nobody holds were tried.
            DirectoryDown: the key is not remembered and the directory does not answer.
        """
        if not key:
            raise Unauthorized(self.kind.missing)
        digest = _digest(key)
        verdict = self._good.get(digest) or self._bad.get(digest)
        if verdict is None or self._clock() + ahead >= verdict.ask_again:
            holder = await self._ask(digest, key, verdict, address)
        else:
            holder = verdict.holder
        if holder is None:
            raise Unauthorized(self.kind.unknown)
        self._used.add(digest)
        return holder

    def forget(self, changed: Callable[[T], bool]) -> None:
        """Forget the verdicts on holders that have changed: requests and open streams then ask again."""
        for digest, verdict in list(self._good.items()):
            if verdict.holder is not None and changed(verdict.holder):
                del self._good[digest]
        self._ask_now()

    def forget_key(self, key: str) -> None:
        """Forget the verdict on a key that has ended: requests and open streams ask again now."""
        self._good.pop(_digest(key), None)
        self._ask_now()

    def _ask_now(self) -> None:
        # Whatever is being answered now may be from before the change.
        self._asking.clear()
        self._forgotten.set()
        self._forgotten = asyncio.Event()

    async def ended(self, key: str, address: str = "") -> None:
        """Return once a key that was good is refused, or can be verified no longer."""
        digest, waiter = _digest(key), asyncio.get_running_loop().create_future()
        # One asks for all streams of a key: thousands that ask at the same moment would make everybody wait.
        if digest not in self._streams:
            self._streams[digest] = _Streams(asyncio.create_task(self._watch(digest, key, address)))
        streams = self._streams[digest]
        streams.waiters.add(waiter)
        try:
            await waiter
        finally:
            streams.waiters.discard(waiter)
            if not streams.waiters and self._streams.get(digest) is streams:
                del self._streams[digest]
                streams.task.cancel()

    async def _watch(self, digest: bytes, key: str, address: str) -> None:
        await self._refused(digest, key, address)
        for waiter in self._streams.pop(digest).waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _refused(self, digest: bytes, key: str, address: str) -> None:
        while True:
            verdict = self._good.get(digest)
            left = 0.0 if verdict is None else verdict.ask_again - self._clock()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._forgotten.wait(), max(STREAM_SECONDS, left - STREAM_SECONDS))
            try:
                # A stream that waited for the end of the verdict would outlive it by a pause.
                await self.holder(key, address, STREAM_SECONDS)
            except EarshotError:
                return

    def take_used(self) -> set[bytes]:
        """Return the digests of the good keys that were sent since the last call."""
        used, self._used = self._used, set()
        return used

    async def _ask(self, digest: bytes, key: str, verdict: _Verdict[T] | None, address: str) -> T | None:
        task = self._asking.get(digest)
        # One with a wrong checksum is not looked up, and of another form only what an operator has chosen.
        looked_up = apikeys.well_formed(key) is True
        if task is None:
            if looked_up and (verdict is None or verdict.holder is None):
                self._tries.check(address)
                if len(self._asking) >= ASKING:
                    raise Unavailable("too many unknown keys were tried")
            task = self._asking[digest] = asyncio.create_task(self._ask_directory(key))
            task.add_done_callback(lambda task: self._forget_question(digest, task))
        forgotten = self._forgotten
        try:
            # A caller that hangs up must not cancel the question of the others.
            holder = await asyncio.shield(task)
        except DirectoryDown as down:
            return self._grace_holder(verdict, down)
        if holder is None and looked_up:
            self._tries.count(address)
        if forgotten is self._forgotten:
            self._remember(digest, holder)
        return holder

    def _forget_question(self, digest: bytes, task: asyncio.Task[T | None]) -> None:
        if self._asking.get(digest) is task:
            del self._asking[digest]
        if not task.cancelled():
            task.exception()  # seen here, in case every caller hung up

    def _grace_holder(self, verdict: _Verdict[T] | None, down: DirectoryDown) -> T:
        now = self._clock()
        if verdict is None or verdict.holder is None or now >= verdict.worthless_at:
            raise DirectoryDown(self.kind.unverified) from down
        verdict.ask_again = now + RETRY_SECONDS
        return verdict.holder

    def _remember(self, digest: bytes, holder: T | None) -> None:
        self._good.pop(digest, None)
        self._bad.pop(digest, None)
        end = self._clock() + self._seconds
        store = self._bad if holder is None else self._good
        store[digest] = _Verdict(holder, end, end + GRACE_SECONDS)


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
