"""The small parts beside the agents: references, audio, followers, verdicts, the sweeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.draft import Draft
from streams.folding.followers import Followers
from streams.folding.references import References
from streams.folding.sweeper import SWEEP, sweep
from streams.sessions.audio import AudioCache, AudioSource
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import MemoryPartition
from topics import keys, record_codec
from topics.errors import AudioError, Unavailable
from topics.folding import Verdict
from topics.rows import AudioRow
from topics.sessions.records import Chunk, Sealed

# --- references -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 12))))
def test_the_lowest_reference_is_the_minimum_of_those_held(changes: list[tuple[bool, int, int]]) -> None:
    references = References()
    held: dict[int, set[int]] = {partition: set() for partition in range(4)}
    for add, partition, offset in changes:
        if add:
            references.add(partition, offset)
            held[partition].add(offset)
        else:
            references.discard(partition, offset)
            held[partition].discard(offset)
        assert [references.lowest(p) for p in held] == [min(held[p], default=None) for p in held]


def test_partitions_that_went_away_hold_nothing() -> None:
    references = References()
    references.add(1, 5)
    references.clear()
    assert references.lowest(1) is None
    references.add(1, 7)
    assert references.lowest(1) == 7


# --- audio ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 20), st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=12), st.booleans())))
def test_the_cache_stays_within_its_bytes(limit: int, changes: list[tuple[int, bytes, bool]]) -> None:
    cache = AudioCache(limit)
    for offset, data, drop in changes:
        if drop:
            cache.drop(0, offset)
            assert cache.get(0, offset) is None
        else:
            cache.put(0, offset, data)
        held = [kept for at in range(10) if (kept := cache.get(0, at)) is not None]
        assert cache.size == sum(map(len, held)) <= limit


def test_the_cache_drops_the_oldest_first() -> None:
    cache = AudioCache(4)
    for offset in range(3):
        cache.put(0, offset, b"ab")
    assert [cache.get(0, offset) for offset in range(3)] == [None, b"ab", b"ab"]


class Log:
    """Records by offset; notes what was read."""

    def __init__(self, records: dict[int, bytes]) -> None:
        self.records = records
        self.asked: list[int] = []

    async def read(self, partition: int, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
        for offset in offsets:
            self.asked.append(offset)
            yield self.records.get(offset)


def row(offset: int, data: bytes) -> AudioRow:
    return AudioRow(offset, len(data), xxhash.xxh3_128_digest(data))


def read(source: AudioSource, chunks: Sequence[AudioRow]) -> list[bytes]:
    async def gather() -> list[bytes]:
        return [data async for data in source.read(0, chunks)]

    return asyncio.run(gather())


def test_audio_comes_from_the_cache_while_it_is_there_and_then_from_the_log() -> None:
    log = Log({offset: record_codec.encode(Chunk("c", offset, b"%d" % offset)) for offset in range(4)})
    cache = AudioCache(100)
    cache.put(0, 0, b"0")
    cache.put(0, 3, b"3")
    chunks = [row(offset, b"%d" % offset) for offset in range(4)]
    assert read(AudioSource(cache, log), chunks) == [b"0", b"1", b"2", b"3"]
    assert log.asked == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (None, "older than the retention time"),
        (b"\x01noise", "cannot be read from the log"),
        (record_codec.encode(Chunk("c", 0, b"other")), "damaged in the log"),
        (record_codec.encode(Sealed("c")), "damaged in the log"),
    ],
)
def test_audio_that_the_log_does_not_give_back_ends_the_session_with_a_cause(value: bytes | None, cause: str) -> None:
    log = Log({} if value is None else {0: value})
    with pytest.raises(AudioError, match=cause):
        read(AudioSource(AudioCache(0), log), [row(0, b"data")])


# --- followers ------------------------------------------------------------------------------------------------------


def test_a_change_between_registration_and_waiting_is_not_missed() -> None:
    async def scenario() -> list[bool]:
        followers = Followers()
        follower = followers.follow("s")
        followers.notify(["other", "s"])
        seen = await follower.changed(10)
        return [seen, await follower.changed(0)]

    assert asyncio.run(scenario()) == [True, False]


def test_every_reader_of_a_session_is_woken_and_no_other() -> None:
    async def scenario() -> list[bool]:
        followers = Followers()
        readers = [followers.follow(session) for session in ("a", "a", "b")]
        followers.notify(["a"])
        return [await reader.changed(0.001) for reader in readers]

    assert asyncio.run(scenario()) == [True, True, False]


def test_readers_are_sent_away_when_the_partitions_go() -> None:
    async def scenario() -> None:
        followers = Followers()
        follower = followers.follow("a")
        followers.lose()
        await follower.changed(10)

    with pytest.raises(Unavailable, match="moved to another node"):
        asyncio.run(scenario())


def test_nobody_waits_for_a_node_that_is_about_to_stop() -> None:
    async def scenario() -> Sequence[object]:
        followers = Followers()
        before = followers.follow("a")
        followers.withdraw()
        later = followers.follow("a")
        return await asyncio.gather(before.changed(10), later.changed(10), return_exceptions=True)

    assert [type(found) for found in asyncio.run(scenario())] == [Unavailable, Unavailable]


def test_a_closed_reader_is_forgotten() -> None:
    async def scenario() -> int:
        followers = Followers()
        follower = followers.follow("a")
        follower.close()
        follower.close()
        return len(followers._by_id)

    assert asyncio.run(scenario()) == 0


# --- verdicts -------------------------------------------------------------------------------------------------------


def test_a_verdict_reaches_whoever_waits_and_nobody_else_minds() -> None:
    async def scenario() -> None:
        verdicts = Verdicts()
        waiting, given_up = verdicts.expect("a"), verdicts.expect("b")
        given_up.cancel()
        for command in ("a", "b", "replayed"):
            verdicts.resolve(command, Verdict(200, 1))
        assert waiting.result() == Verdict(200, 1)
        assert len(verdicts) == 0
        verdicts.expect("c")
        verdicts.forget("c")
        verdicts.forget("c")
        assert len(verdicts) == 0

    asyncio.run(scenario())


# --- sweeper --------------------------------------------------------------------------------------------------------


def store_with(due: dict[str, int]) -> SessionStore:
    store = SessionStore(MemoryPartition())
    draft = Draft(store)
    for session, deadline in due.items():
        draft.put(keys.due_key(deadline, session), b"")
    draft.keep()
    draft.apply()
    return store


def swept(stores: list[SessionStore], now: int) -> list[tuple[str, int]]:
    sent: list[tuple[str, int]] = []

    async def send(session: str, due: int) -> None:
        sent.append((session, due))

    assert asyncio.run(sweep(stores, now, send)) == len(sent)
    return sent


def test_the_sweeper_asks_for_what_is_due_in_every_partition() -> None:
    one, other = store_with({"A" * 24: 50, "B" * 24: 10}), store_with({"C" * 24: 51})
    assert swept([one, other], 9) == []
    assert [session[0] for session, _ in swept([one, other], 50)] == ["B", "A"]
    assert swept([one, other], 51)[-1] == ("C" * 24, 51)


def test_the_sweeper_takes_a_bounded_number_at_once() -> None:
    store = store_with({f"{number:024d}": number for number in range(SWEEP + 5)})
    assert len(swept([store], 10_000)) == SWEEP
