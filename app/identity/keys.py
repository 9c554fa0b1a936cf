"""Caches the database's verdicts on keys of one kind.

A verdict is valid for `seconds`, so a key change on another node takes effect here within that time. A change on this
node takes effect at once. While the directory is down, keys that were good keep working for an hour, and new keys
cannot be verified. The cache stores only the SHA-256 of a key. Refusals have their own cache, so that a flood of bad
keys cannot evict good ones.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import msgspec
from cachetools import LRUCache

from app.http.addresses import customer
from topics import apikeys
from topics.errors import DirectoryDown, EarshotError, Unauthorized, Unavailable
from topics.tally import Names, OwnTally, Tally

T = TypeVar("T")

REMEMBERED_KEYS: Final = 4096
#: While the directory is down, a good key is accepted for this long after its verdict expired.
GRACE_SECONDS: Final = 3600.0
#: While the directory is down, it is asked about one key at most this often.
RETRY_SECONDS: Final = 5.0
#: The directory is asked about the key of an open stream at most this often.
STREAM_SECONDS: Final = 1.0
#: Concurrent questions about keys not known to be good, and about those of open streams.
ASKING: Final = 64
#: All addresses together may try this many times as often as one.
ALL: Final = 10
#: Seconds' worth of tries that may come at once.
BURST: Final = 5


ENDED: Final = "the key has ended"
CROWDED: Final = "too many unknown keys were tried from this address or in total; try again in 1 s"
LINK_ENDED: Final = "the link expired, or is for another job"


class KeyHeader(msgspec.Struct, frozen=True):
    """A kind of key: where requests carry it, and the answer if there is no valid one."""

    name: str
    header: bytes
    #: The message if a request has no key.
    missing: str
    #: The message if a key is unknown or revoked.
    unknown: str
    #: The message while the directory does not answer.
    unverified: str


PROJECT: Final = KeyHeader(
    "project", b"x-api-key", "API key required", "Invalid API key", "API key verification failed"
)
#: The token of a link, in the query.
AUDIO: Final = KeyHeader("audio_link", b"", LINK_ENDED, LINK_ENDED, "link verification failed")
ORGANIZATION: Final = KeyHeader(
    "organization", b"x-org-key", "x_org_key required", "organization not found", "organization key verification failed"
)


def _later(seconds: float, call: Callable[..., object], *arguments: object) -> None:
    asyncio.get_running_loop().call_later(seconds, call, *arguments)


class KeyRateLimiter:
    """Limits look-ups of unknown keys, for each address (IPv6: each /64) and in total. Loop only.

    Only unknown keys count, so devices that reconnect together do not block each other.
    """

    def __init__(self, per_second: float, tally: Tally | None = None, later: Callable[..., object] = _later) -> None:
        """Allow tries for each address, `ALL` times as many in total, and `BURST` seconds' worth at once.

        `tally` has those of other lanes too; `later` calls a function after some seconds.
        """
        self._rate = per_second
        #: Leaky buckets: tries leave them one by one, at the rate.
        self._tally = tally or OwnTally()
        self._later = later

    def check(self, address: str) -> None:
        """Raise Unavailable if an address, or all addresses together, have no try left."""
        for names, rate in self._buckets(address):
            if self._tally.total(names) + 1 > rate * BURST:
                raise Unavailable(CROWDED)

    def count(self, address: str) -> None:
        """Record a failed attempt."""
        for names, rate in self._buckets(address):
            self._tally.add(names, 1)
            self._later(self._tally.total(names) / rate, self._tally.add, names, -1)

    def _buckets(self, address: str) -> tuple[tuple[Names, float], ...]:
        return ((), self._rate * ALL), ((customer(address),), self._rate)


class _Verdict(msgspec.Struct, Generic[T]):
    holder: T | None
    #: Monotonic times: when the directory answered, and when to ask it again.
    at: float
    ask_again: float


class _Streams(msgspec.Struct, eq=False):
    task: asyncio.Task[None]
    waiters: set[asyncio.Future[EarshotError]] = msgspec.field(default_factory=set)


class Keyring(Generic[T]):
    """Caches the directory's answers; concurrent calls about one key share one question.

    `ask` returns the holder of a key of this kind, None if it has none, and may raise DirectoryDown.
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
        self._watching = asyncio.Semaphore(ASKING)
        #: Set, and replaced, when verdicts are invalidated.
        self._forgotten = asyncio.Event()
        self._used: set[bytes] = set()

    async def holder(self, key: str, address: str | None = "", ahead: float = 0.0) -> T:
        """Return the holder of a key, asking again `ahead` seconds before a verdict expires.

        Args:
            address: sent the key, and has a limited number of tries; None if an open stream sent it, when it was good.

        Raises:
            Unauthorized: no key, or an invalid one.
            Unavailable: too many unknown keys were tried.
            DirectoryDown: the key is not cached and the directory does not answer.
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

    def known(self, key: str) -> T | None:
        """Return the cached holder of a key, None if it is not cached; ask nobody."""
        verdict = self._good.get(_digest(key)) if key else None
        return None if verdict is None else verdict.holder

    def forget(self, changed: Callable[[T], bool], ended: bool = False) -> None:
        """Invalidate the verdicts on holders that have changed; if their keys have `ended`, refuse these from now on.

        Requests and open streams look again at once.
        """
        good = self._good.items()
        self._invalidate([digest for digest, one in good if one.holder is not None and changed(one.holder)], ended)

    def doubt(self) -> None:
        """Ask about each key again at its next use, and about those of streams now; without an answer, all stand."""
        for verdict in self._good.values():
            verdict.ask_again = verdict.at
        self._invalidate((), ended=False)

    def forget_key(self, key: str, ended: bool = False) -> None:
        """Invalidate the verdict on one key, as `forget` does."""
        self._invalidate([_digest(key)], ended)

    def _invalidate(self, digests: Iterable[bytes], ended: bool) -> None:
        for digest in digests:
            self._good.pop(digest, None)
            if ended:
                # Refused without a question, because the directory may be down. An ended key never returns.
                self._bad[digest] = _Verdict(None, self._clock(), self._clock() + GRACE_SECONDS)
        # Answers still under way may predate the change.
        self._asking.clear()
        self._forgotten.set()
        self._forgotten = asyncio.Event()

    async def ended(self, key: str) -> EarshotError:
        """Return Unauthorized once a key that was good is refused, DirectoryDown if it cannot be verified for long."""
        digest = _digest(key)
        waiter: asyncio.Future[EarshotError] = asyncio.get_running_loop().create_future()
        # One task asks for all streams of a key: thousands of simultaneous questions would delay everybody.
        if digest not in self._streams:
            self._streams[digest] = _Streams(asyncio.create_task(self._watch(digest, key)))
        streams = self._streams[digest]
        streams.waiters.add(waiter)
        try:
            return await waiter
        finally:
            streams.waiters.discard(waiter)
            if not streams.waiters and self._streams.get(digest) is streams:
                del self._streams[digest]
                streams.task.cancel()

    async def _watch(self, digest: bytes, key: str) -> None:
        why = await self._refused(digest, key)
        for waiter in self._streams.pop(digest).waiters:
            if not waiter.done():
                waiter.set_result(why)

    async def _refused(self, digest: bytes, key: str) -> EarshotError:
        verified = self._clock()
        while True:
            verdict = self._good.get(digest)
            if verdict is not None:
                verified = verdict.at
            left = 0.0 if verdict is None else verdict.ask_again - self._clock()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(STREAM_SECONDS, left - STREAM_SECONDS)):
                    await self._forgotten.wait()
            try:
                async with self._watching:
                    # A stream that waited for the verdict to expire would outlive it by a pause.
                    await self.holder(key, None, STREAM_SECONDS)
            except Unauthorized:
                return Unauthorized(ENDED)
            except DirectoryDown as down:
                # `holder` grants no grace after a change on this node, but not every change ends the key.
                if self._clock() >= verified + GRACE_SECONDS:
                    return down

    def take_used(self) -> set[bytes]:
        """Return the digests of the good keys sent since the last call."""
        used, self._used = self._used, set()
        return used

    async def _ask(self, digest: bytes, key: str, verdict: _Verdict[T] | None, address: str | None) -> T | None:
        task = self._asking.get(digest)
        # A key with a wrong checksum is not looked up; a key of another form only if an operator may have chosen it.
        counted = address if apikeys.well_formed(key) is True else None
        if task is None:
            if counted is not None and (verdict is None or verdict.holder is None):
                self._tries.check(counted)
                if len(self._asking) >= ASKING:
                    raise Unavailable(CROWDED)
            task = self._asking[digest] = asyncio.create_task(self._ask_directory(key))
            task.add_done_callback(lambda task: self._forget_question(digest, task))
        forgotten = self._forgotten
        try:
            # A caller that hangs up must not cancel the question for the others.
            holder = await asyncio.shield(task)
        except DirectoryDown as down:
            return self._grace_holder(verdict, down)
        if holder is None and counted is not None:
            self._tries.count(counted)
        if forgotten is self._forgotten:
            self._remember(digest, holder)
        return holder

    def _forget_question(self, digest: bytes, task: asyncio.Task[T | None]) -> None:
        if self._asking.get(digest) is task:
            del self._asking[digest]
        if not task.cancelled():
            task.exception()  # retrieve it, in case every caller hung up

    def _grace_holder(self, verdict: _Verdict[T] | None, down: DirectoryDown) -> T:
        now = self._clock()
        if verdict is None or verdict.holder is None or now >= verdict.at + self._seconds + GRACE_SECONDS:
            raise DirectoryDown(self.kind.unverified, uncertain=False) from down
        verdict.ask_again = now + RETRY_SECONDS
        return verdict.holder

    def _remember(self, digest: bytes, holder: T | None) -> None:
        self._good.pop(digest, None)
        self._bad.pop(digest, None)
        now, store = self._clock(), self._bad if holder is None else self._good
        store[digest] = _Verdict(holder, now, now + self._seconds)


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
