"""Verdicts on keys: their lifetime, look-ups, and behaviour while the directory is down."""

import asyncio
from collections.abc import Callable
from functools import partial
from unittest import mock

import pytest

from app.identity import keys
from app.identity.keys import (
    ALL,
    ASKING,
    BURST,
    GRACE_SECONDS,
    ORGANIZATION,
    PROJECT,
    REMEMBERED_KEYS,
    RETRY_SECONDS,
    KeyRateLimiter,
    Keyring,
)
from tests.unit.app.double import MemoryDirectory
from tests.waiting import until
from topics import apikeys
from topics.apikeys import KeyKind
from topics.errors import DirectoryDown, EarshotError, Unauthorized, Unavailable
from topics.ports.directory import Principal

OURS = Principal("project", "organization")
OF_OUR_FORM = apikeys.new(KeyKind.PROJECT)


class Desk:
    """A cache over a directory, and its clock."""

    seconds = 600.0

    def __init__(self, tries: float = 1e6, good: int = 0) -> None:
        self.now = 0.0
        keys = {"good": OURS, OF_OUR_FORM: OURS, **{f"good {number}": OURS for number in range(good)}}
        self.directory = MemoryDirectory(keys, {"of all": "organization"})
        limiter = KeyRateLimiter(tries, later=self.later)
        self.cache = Keyring(PROJECT, self.directory.project, self.seconds, limiter, self.time)
        self._later: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        self._later.append((self.now + seconds, partial(call, *arguments)))

    def ask(self, key: str, address: str = "") -> Principal:
        for due in [one for one in self._later if one[0] <= self.now]:
            self._later.remove(due)
            due[1]()
        return asyncio.run(self.cache.holder(key, address))


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def stream(desk: Desk, key: str = "good") -> asyncio.Task[EarshotError]:
    """Begin a stream of an accepted key."""
    await desk.cache.holder(key)
    ended = asyncio.create_task(desk.cache.ended(key))
    await asyncio.sleep(0)
    return ended


async def ends(stream: asyncio.Task[EarshotError], why: type[EarshotError] = Unauthorized) -> None:
    """Wait until the stream of a key ends, for this reason."""
    assert isinstance(await asyncio.wait_for(stream, 30), why)


def test_empty_key_is_not_looked_up(desk: Desk) -> None:
    with pytest.raises(Unauthorized, match=r"^API key required$"):
        desk.ask("")
    assert desk.directory.questions == 0


def test_verdicts_are_cached_for_configured_time(desk: Desk) -> None:
    for desk.now, valid, invalid in ((0.0, "good", "new"), (599.0, "good", "new"), (600.0, "new", "good")):
        assert desk.ask(valid) == OURS
        with pytest.raises(Unauthorized, match=r"^Invalid API key$"):
            desk.ask(invalid)
        desk.directory.keys = {"new": OURS}
        assert desk.directory.questions == (4 if desk.now == 600.0 else 2)


async def test_concurrent_calls_share_one_lookup(desk: Desk) -> None:
    assert await asyncio.gather(*(desk.cache.holder("good") for _ in range(20))) == [OURS] * 20
    assert desk.directory.questions == 1


async def test_cancelled_caller_does_not_cancel_shared_lookup(desk: Desk) -> None:
    first = asyncio.create_task(desk.cache.holder("good"))
    second = asyncio.create_task(desk.cache.holder("good"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == OURS
    assert desk.directory.questions == 1


def test_unknown_key_fails_while_directory_is_down(desk: Desk) -> None:
    desk.directory.down = True
    with pytest.raises(DirectoryDown, match=r"^API key verification failed$"):
        desk.ask("good")
    desk.directory.down = False
    assert desk.ask("good") == OURS


def test_valid_key_has_grace_period_while_directory_is_down(desk: Desk) -> None:
    desk.ask("good")
    desk.directory.down = True
    desk.now = 600.0
    assert desk.ask("good") == desk.ask("good") == OURS
    assert desk.directory.questions == 2, "the second call must not wait for a directory that is known to be down"
    desk.now = 600.0 + RETRY_SECONDS
    desk.ask("good")
    assert desk.directory.questions == 3
    desk.now = 600.0 + GRACE_SECONDS
    with pytest.raises(DirectoryDown):
        desk.ask("good")


def test_rejected_key_has_no_grace_period(desk: Desk) -> None:
    with pytest.raises(Unauthorized):
        desk.ask("bad")
    desk.directory.down = True
    desk.now = 600.0
    with pytest.raises(DirectoryDown):
        desk.ask("bad")


async def test_flood_of_bad_keys_does_not_evict_valid_key(desk: Desk) -> None:
    await desk.cache.holder("good")
    for number in range(REMEMBERED_KEYS + 1):
        with pytest.raises(Unauthorized):
            await desk.cache.holder(f"bad {number}")
    before = desk.directory.questions
    await desk.cache.holder("good")
    assert desk.directory.questions == before
    with pytest.raises(Unauthorized):
        await desk.cache.holder("bad 0")
    assert desk.directory.questions == before + 1


async def test_organization_keys_have_own_error_messages(desk: Desk) -> None:
    keys = Keyring(ORGANIZATION, desk.directory.organization, 600.0, KeyRateLimiter(1e6), desk.time)
    assert await keys.holder("of all") == "organization"
    for key, message in (("", "x_org_key required"), ("good", "organization not found")):
        with pytest.raises(Unauthorized, match=rf"^{message}$"):
            await keys.holder(key)
    desk.directory.down = True
    assert await keys.holder("of all") == "organization"
    with pytest.raises(DirectoryDown, match=r"^organization key verification failed$"):
        await keys.holder("new")


async def test_cache_can_be_disabled(desk: Desk) -> None:
    keys = Keyring(PROJECT, desk.directory.project, 0.0, KeyRateLimiter(1e6), desk.time)
    assert await keys.holder("good") == OURS
    del desk.directory.keys["good"]
    with pytest.raises(Unauthorized):
        await keys.holder("good")


# --- changes on this node ------------------------------------------------------------------------------------------


async def test_invalidated_key_is_looked_up_again_without_grace_period(desk: Desk) -> None:
    await desk.cache.holder("good")
    desk.cache.forget(lambda holder: holder.project == "another")
    await desk.cache.holder("good")
    assert desk.directory.questions == 1
    desk.cache.forget(lambda holder: holder.project == OURS.project)
    desk.directory.down = True
    with pytest.raises(DirectoryDown):
        await desk.cache.holder("good")


async def test_lookup_started_before_invalidation_is_not_cached(desk: Desk) -> None:
    """The directory is slow, and its answer was right when it was asked."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(key: str) -> Principal | None:
        holder = desk.directory.keys.get(key)
        begun.set()
        await go_on.wait()
        return holder

    cache = Keyring(PROJECT, slow, desk.seconds, KeyRateLimiter(1e6), desk.time)
    before = asyncio.create_task(cache.holder("good"))
    await begun.wait()
    del desk.directory.keys["good"]
    cache.forget(lambda holder: True)
    after = asyncio.create_task(cache.holder("good"))
    await asyncio.sleep(0)
    go_on.set()
    await before
    for request in (after, cache.holder("good")):
        with pytest.raises(Unauthorized):
            await request


async def test_stream_ends_when_invalidated_key_is_rejected(desk: Desk) -> None:
    ended = await stream(desk)
    desk.cache.forget(lambda holder: True)
    await until(lambda: desk.directory.questions == 2)
    assert not ended.done(), "the key is good"
    del desk.directory.keys["good"]
    desk.cache.forget(lambda holder: True)
    await ends(ended)


async def test_stream_checks_key_again_when_cache_expires(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    """Another node revoked the key. A directory that is down does not end the stream within the hour of grace."""
    monkeypatch.setattr(keys, "STREAM_SECONDS", 0.001)
    monkeypatch.setattr(keys, "RETRY_SECONDS", 0.01)
    await desk.cache.holder("good")
    desk.now = desk.seconds - 0.01
    ended = asyncio.create_task(desk.cache.ended("good"))
    del desk.directory.keys["good"]
    desk.directory.down = True
    desk.now = desk.seconds
    # The next question is later than this one's answer, not than the question.
    await until(lambda: desk.cache._good[keys._digest("good")].ask_again > desk.seconds)
    assert desk.directory.questions == 2
    assert not ended.done()
    desk.directory.down = False
    desk.now += 0.01
    await ends(ended)


async def test_short_outage_after_invalidation_ends_no_stream(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    monkeypatch.setattr(keys, "STREAM_SECONDS", 0.001)
    ended = await stream(desk, OF_OUR_FORM)
    desk.directory.down = True
    desk.cache.forget(lambda holder: True)
    await until(lambda: desk.directory.questions > 3)
    assert not ended.done()
    desk.directory.down = False
    del desk.directory.keys[OF_OUR_FORM]
    await ends(ended, Unauthorized)


async def test_flood_of_unknown_keys_neither_ends_nor_prolongs_stream() -> None:
    """The address of the stream has no try left, which would otherwise keep a revoked key's stream open."""
    desk = Desk(tries=1)
    ended = await stream(desk, OF_OUR_FORM)
    for _ in range(BURST):
        with pytest.raises(Unauthorized):
            await desk.cache.holder(apikeys.new(KeyKind.PROJECT))
    with pytest.raises(Unavailable):
        await desk.cache.holder(apikeys.new(KeyKind.PROJECT))
    before = desk.directory.questions
    desk.cache.forget(lambda holder: True)
    await until(lambda: desk.directory.questions > before)
    assert not ended.done()
    del desk.directory.keys[OF_OUR_FORM]
    desk.cache.forget_key(OF_OUR_FORM)
    await ends(ended, Unauthorized)


async def test_doubted_key_is_asked_about_and_stands_while_directory_is_down(desk: Desk) -> None:
    ended = await stream(desk)
    desk.directory.down = True
    before = desk.directory.questions
    desk.cache.doubt()
    await until(lambda: desk.directory.questions > before)
    assert await desk.cache.holder("good") == OURS
    assert not ended.done()
    desk.directory.down = False
    desk.directory.keys.clear()
    desk.cache.doubt()
    await ends(ended)
    with pytest.raises(Unauthorized):
        await desk.cache.holder("good")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 600.0])
async def test_ended_key_is_refused_while_directory_is_down(desk: Desk, seconds: float) -> None:
    """And its streams end, also one that opens just then."""
    cache = Keyring(PROJECT, desk.directory.project, seconds, KeyRateLimiter(1e6), desk.time)
    keys = ("good", OF_OUR_FORM)
    for key in keys:
        await cache.holder(key)
    streams = [asyncio.create_task(cache.ended(key)) for key in keys]
    await asyncio.sleep(0)
    desk.directory.down = True
    cache.forget_key("good", ended=True)
    cache.forget(lambda holder: holder == OURS, ended=True)
    streams += [asyncio.create_task(cache.ended(key)) for key in keys]
    async with asyncio.timeout(30):
        assert {type(end) for end in await asyncio.gather(*streams)} == {Unauthorized}
    for key in keys:
        with pytest.raises(Unauthorized, match=r"^Invalid API key$"):
            await cache.holder(key)


@pytest.mark.slow
async def test_stream_is_open_no_longer_than_its_key_is_accepted(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    """The directory goes down before the verdict expires, and stays so."""
    monkeypatch.setattr(keys, "STREAM_SECONDS", 0.001)
    await desk.cache.holder("good")
    desk.directory.down = True
    desk.now = desk.seconds + GRACE_SECONDS - RETRY_SECONDS
    ended = asyncio.create_task(desk.cache.ended("good"))
    before = desk.directory.questions
    await until(lambda: desk.directory.questions > before)
    assert not ended.done()
    desk.now += RETRY_SECONDS
    await ends(ended, DirectoryDown)


async def test_stream_ends_without_verdict_after_grace(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    monkeypatch.setattr(keys, "STREAM_SECONDS", 0.001)
    ended = await stream(desk)
    await asyncio.sleep(0.01)
    desk.directory.down = True
    desk.cache.forget(lambda holder: True)
    desk.now += GRACE_SECONDS
    await ends(ended, DirectoryDown)


async def test_stream_ends_by_cache_expiry(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    """Another node revoked the key; a pause may end slightly early."""

    def timeout(pause: float) -> None:
        desk.now += pause - 0.001
        raise TimeoutError

    monkeypatch.setattr(asyncio, "timeout", timeout)
    await desk.cache.holder("good")
    del desk.directory.keys["good"]
    await desk.cache.ended("good")
    assert desk.seconds - 2 < desk.now <= desk.seconds


async def test_streams_of_one_key_share_lookup(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    """Thousands of simultaneous look-ups would delay everyone."""
    monkeypatch.setattr(keys, "STREAM_SECONDS", 0.01)
    await desk.cache.holder("good")
    desk.now = desk.seconds
    streams = [asyncio.create_task(desk.cache.ended("good")) for _ in range(100)]
    with mock.patch.object(desk.cache, "holder", wraps=desk.cache.holder) as holder:
        await until(lambda: desk.directory.questions == 2)
        assert holder.call_count < 10
    for stream in streams[:50]:
        stream.cancel()
    await asyncio.wait(streams[:50])
    assert not any(stream.done() for stream in streams[50:])
    del desk.directory.keys["good"]
    desk.cache.forget(lambda holder: True)
    async with asyncio.timeout(30):
        await asyncio.gather(*streams[50:])
    streams = [asyncio.create_task(desk.cache.ended("good 0")) for _ in range(2)]
    await asyncio.sleep(0)
    for stream in streams:
        stream.cancel()
    await asyncio.wait(streams)
    assert not desk.cache._streams


@pytest.mark.slow
async def test_keys_of_streams_are_looked_up_a_few_at_a_time(desk: Desk) -> None:
    """Otherwise the streams of thousands of keys would ask at once after an outage."""
    asked, most, answer = 0, 0, asyncio.Event()

    async def slow(key: str) -> Principal | None:
        nonlocal asked, most
        asked, most = asked + 1, max(most, len(cache._asking))
        await answer.wait()
        return OURS

    cache = Keyring(PROJECT, slow, desk.seconds, KeyRateLimiter(1e6), desk.time)
    streams = [asyncio.create_task(cache.ended(f"good {number}")) for number in range(3 * ASKING)]
    await asyncio.sleep(0)
    cache.forget(lambda holder: True)
    await until(lambda: asked >= ASKING)
    await asyncio.sleep(0.01)
    answer.set()
    await until(lambda: asked == 3 * ASKING)
    assert most == ASKING
    for stream in streams:
        stream.cancel()


# --- a flood of unknown keys ----------------------------------------------------------------------------------------


def flood(desk: Desk, address: str, count: int) -> int:
    """Try random keys; return the number of look-ups."""
    before = desk.directory.questions
    for _ in range(count):
        with pytest.raises((Unauthorized, Unavailable)):
            desk.ask(apikeys.new(KeyKind.PROJECT), address)
    return desk.directory.questions - before


def test_unknown_key_lookups_are_limited_per_address() -> None:
    desk = Desk(tries=2)
    assert flood(desk, "a", 100) == 2 * BURST
    with pytest.raises(Unavailable, match="too many unknown keys"):
        desk.ask(OF_OUR_FORM, "a")
    assert desk.ask(OF_OUR_FORM, "b") == OURS
    # It is cached now, and needs no look-up. Keys of other forms are looked up only if an operator chose such keys.
    assert desk.ask(OF_OUR_FORM, "a") == OURS
    assert desk.ask("good", "a") == OURS
    desk.now += 1
    assert flood(desk, "a", 10) == 2


def test_unknown_key_lookups_are_limited_overall() -> None:
    desk = Desk(tries=2)
    desk.ask("good")
    asked = sum(flood(desk, f"{number}", 10) for number in range(100))
    assert asked == 2 * ALL * BURST
    desk.now += desk.seconds
    assert desk.ask("good", "one more") == OURS


async def test_valid_keys_do_not_count_as_attempts() -> None:
    desk = Desk(tries=1, good=1000)
    for number in range(1000):
        assert await desk.cache.holder(f"good {number}", "a") == OURS


async def test_concurrent_unknown_key_lookups_are_limited() -> None:
    desk = Desk(tries=1e6)
    keys = [apikeys.new(KeyKind.PROJECT) for _ in range(2 * ASKING)]
    asking = [asyncio.create_task(desk.cache.holder(key, f"{number}")) for number, key in enumerate(keys)]
    ended = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(error) for error in ended] == [Unauthorized] * ASKING + [Unavailable] * ASKING


def test_ipv6_network_shares_one_lookup_limit() -> None:
    desk = Desk(tries=2)
    asked = sum(flood(desk, f"2001:db8::{number:x}", 1) for number in range(4 * BURST))
    assert asked == 2 * BURST
    assert flood(desk, "2001:db8:0:1::1", 1) == 1
