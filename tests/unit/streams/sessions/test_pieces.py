"""The small parts beside the agents: references, audio, followers and verdicts."""

import asyncio
import weakref
from collections.abc import Sequence
from unittest import mock

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streams.folding import references
from streams.folding.awaited_verdicts import Verdicts
from streams.folding.followers import WAKES, Followers
from streams.folding.references import References
from streams.log import RECORD_COST
from streams.sessions import audio
from streams.sessions.audio import STALE_SECONDS, STALE_STREAM_SECONDS, AudioCache
from tests.garbage import uncollected
from tests.unit.streams.sessions.studio import Commands
from tests.unit.streams.verdicts import expect
from tests.waiting import turn, until
from topics import record_codec
from topics.errors import AudioError
from topics.folding import AudioRow, Verdict
from topics.sessions.records import Chunk, Sealed

# --- references -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slack", [0, 2, references.SLACK])
@given(changes=st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.booleans()), max_size=60))
def test_lowest_reference_is_minimum_held(slack: int, changes: list[tuple[bool, int, bool]]) -> None:
    held, kept = References(), set[int]()
    with mock.patch.object(references, "SLACK", slack):
        for add, offset, look in changes:
            if add:
                held.add(offset)
                kept.add(offset)
            else:
                held.discard(offset)
                kept.discard(offset)
            if look:
                assert held.lowest() == min(kept, default=None)
    assert held.lowest() == min(kept, default=None)
    assert held.within(3, 9) == sorted(kept & set(range(3, 9)))
    assert len(held) == len(kept)


def test_references_stay_bounded_without_lowest_queries() -> None:
    """Kafka trims by time: a stream of several days used to hold an entry for each of its chunks."""
    held = References()
    for offset in range(20 * references.SLACK):
        held.add(offset)
        if offset >= 8:
            held.discard(offset - 8)
        assert len(held._order) <= 2 * 8 + references.SLACK + 2
    assert held.lowest() == 20 * references.SLACK - 8


# --- audio ----------------------------------------------------------------------------------------------------------


def held(cache: AudioCache) -> list[int]:
    return [offset for offset in range(10) if cache.at_hand(0, offset)]


@given(st.integers(0, 2000), st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=12), st.booleans())))
def test_audio_cache_stays_within_byte_limit(limit: int, changes: list[tuple[int, bytes, bool]]) -> None:
    cache, sizes = AudioCache(limit, Commands()), dict[int, int]()
    for offset, data, drop in changes:
        if drop:
            cache.drop(0, offset)
            assert not cache.at_hand(0, offset)
        elif not cache.at_hand(0, offset):
            cache.put(0, offset, data)
            sizes[offset] = RECORD_COST + len(data)
        assert cache.size == sum(sizes[offset] for offset in held(cache)) <= limit


@pytest.mark.parametrize(("of_file", "patience"), [(True, STALE_SECONDS), (False, STALE_STREAM_SECONDS)])
def test_full_cache_keeps_first_entries_until_stale(of_file: bool, patience: float) -> None:
    now = 0.0
    cache = AudioCache(2 * (RECORD_COST + 2), Commands(), clock=lambda: now)
    for offset in range(3):
        cache.put(0, offset, b"ab", of_file=of_file)
    now += patience - 1
    cache.put(0, 4, b"xx", of_file=of_file)
    assert held(cache) == [0, 1]
    now += 1
    cache.put(0, 3, b"cd", of_file=of_file)
    assert held(cache) == [1, 3]
    cache.forget({0})
    assert cache.size == 0


def test_tiny_chunks_in_cache_are_limited() -> None:
    """Most chunks of a file may be a byte long; each takes far more in memory."""
    cache = AudioCache(4 * RECORD_COST, Commands(), clock=lambda: 0.0)
    for offset in range(5):
        cache.put(0, offset, b"f", of_file=True)
    cache.put(0, 5, b"s")
    assert held(cache) == [1, 2, 5]


def test_streams_evict_files_from_full_cache() -> None:
    """A file's audio is needed once it is complete; a stream without its audio would fall further behind."""
    cache = AudioCache(2 * (RECORD_COST + 2), Commands(), clock=lambda: 0.0)
    cache.put(0, 0, b"fi", of_file=True)
    cache.put(0, 1, b"st")
    cache.put(0, 2, b"re")
    cache.put(0, 3, b"le", of_file=True)
    cache.put(0, 4, b"am")
    assert held(cache) == [1, 2]


def log_of(*values: bytes) -> Commands:
    """Return a log that returns two records at a time."""
    log = Commands()
    log.values, log.together = list(values), 2
    return log


def row(offset: int, data: bytes) -> AudioRow:
    return AudioRow(offset, len(data), xxhash.xxh3_128_digest(data))


async def read(source: AudioCache, chunks: Sequence[AudioRow]) -> list[bytes]:
    return [await source.chunk(0, row) for row in chunks]


async def test_audio_is_read_from_cache_then_log() -> None:
    log = log_of(*(record_codec.encode(Chunk("c", offset, b"%d" % offset)) for offset in range(4)))
    cache = AudioCache(1000, log)
    cache.put(0, 0, b"0")
    cache.put(0, 3, b"3")
    chunks = [row(offset, b"%d" % offset) for offset in range(4)]
    assert await read(cache, chunks) == [b"0", b"1", b"2", b"3"]
    assert (log.reads, log.read) == (1, 2)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (None, "no longer in the log: its retention time is over, or the log was damaged"),
        (b"\x01noise", "cannot be read from the log"),
        (record_codec.encode(Chunk("c", 0, b"other")), "damaged in the log"),
        (record_codec.encode(Sealed("c")), "damaged in the log"),
    ],
)
async def test_unreadable_log_audio_raises_audio_error(value: bytes | None, cause: str) -> None:
    log = log_of(*([] if value is None else [value]))
    with pytest.raises(AudioError, match=cause):
        await read(AudioCache(0, log), [row(0, b"data")])


async def test_read_ahead_evicts_no_fresh_audio_and_leaves_once_released(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(*(record_codec.encode(Chunk("c", offset, b"0")) for offset in range(9)))
    log.together = 9
    monkeypatch.setattr(audio, "AHEAD_BYTES", 3 * (len(log.values[0] or b"") + RECORD_COST))
    cache = AudioCache(RECORD_COST + 1, log, lambda partition, offset: offset != 8)
    cache.put(0, 5, b"0")
    await read(cache, [row(0, b"0")])
    assert held(cache) == [4, 5, 6, 7], "the last three besides the fresh one; nobody needs the ninth"
    cache.drop(0, 6)
    assert held(cache) == [4, 5, 7]
    # Otherwise each partition that was ever read would shrink the buffers of all others.
    cache.forget({0})
    assert (held(cache), cache.size, cache._ahead.size, dict(cache._reading)) == ([], 0, 0, {})


async def test_reader_that_waits_while_its_partition_is_lost_gets_its_audio() -> None:
    log = log_of(*(record_codec.encode(Chunk("c", offset, b"0")) for offset in range(2)))
    source = AudioCache(0, log)
    async with source._reading[0]:
        waiting = asyncio.create_task(source.chunk(0, row(1, b"0")))
        await turn()
        source.forget({0})
    assert await waiting == b"0"


# --- followers ------------------------------------------------------------------------------------------------------


async def test_change_before_waiting_is_not_missed() -> None:
    followers = Followers()
    follower = followers.follow("s")
    followers.notify(["other", "s"])
    seen = await follower.changed(10)
    assert [seen, await follower.changed(0)] == [True, False]


async def test_only_readers_of_changed_session_are_woken() -> None:
    followers = Followers()
    readers = [followers.follow(session) for session in ("a", "a", "b")]
    followers.notify(["a"])
    assert [await reader.changed(0.001) for reader in readers] == [True, True, False]


async def test_readers_are_woken_in_turn_by_session() -> None:
    followers, woken = Followers(), list[str]()
    for session in ["loud"] * (3 * WAKES) + ["quiet"]:
        followers.subscribe(session, lambda lost, session=session: woken.append(session))  # type: ignore[misc]
    followers.notify(["loud", "quiet"])
    followers.notify(["loud"])
    assert len(woken) == WAKES, "one iteration of the loop"
    assert woken[:3] == ["loud", "quiet", "loud"]
    # Readers that were woken before the second change are woken again.
    await until(lambda: len(woken) == 4 * WAKES)
    followers.notify(["quiet"])
    assert woken[-1] == "quiet"


async def test_closed_reader_is_freed_at_once() -> None:
    """Whoever still holds the others holds nothing of it."""
    followers = Followers()
    with uncollected():
        follower = followers.follow("a")
        follower.close()
        follower.close()
        assert len(followers._by_id) == 0
        freed = weakref.ref(follower)
        del follower
        assert freed() is None


# --- verdicts -------------------------------------------------------------------------------------------------------


async def test_verdict_reaches_only_its_waiter() -> None:
    verdicts = Verdicts()
    waiting, given_up = expect(verdicts, "a"), expect(verdicts, "b")
    given_up.cancel()
    for command in ("a", "b", "replayed"):
        verdicts.resolve(command, Verdict(200, 1))
    assert waiting.result() == Verdict(200, 1)
    assert len(verdicts) == 0
    expect(verdicts, "c")
    verdicts.forget("c")
    verdicts.forget("c")
    assert len(verdicts) == 0
