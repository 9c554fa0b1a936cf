"""The intake agent: rows, verdicts and work that result from commands. The rules have their own tests."""

import msgspec
import pytest
import xxhash

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.batch import write_draft
from streams.folding.draft import Draft
from streams.folding.fold import Changes
from streams.sessions.audio import AudioCache
from streams.sessions.intake import SessionIntake
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import MemoryPartition, delivered
from topics import keys
from topics.folding import Verdict
from topics.sessions.records import Chunk, Deleted, Expired, Opened, Sealed, SessionCommand
from topics.sessions.rules import TOMBSTONE_MS, SessionState

SESSION = "S" * 24
IDLE_MS = 1000
STREAM = Opened("open", "stream", "audio/wav", "p", 1000, 500)
FILE = Opened("open", "file", "audio/wav", "p", 1000, 500)


class House:
    """A partition and the agent; `fold` folds one batch and returns the verdicts in order."""

    def __init__(self) -> None:
        self.partition = MemoryPartition(2)
        self.store = SessionStore(self.partition)
        self.cache = AudioCache(1000)
        self.verdicts = Verdicts()
        self.announced: list[Changes] = []
        self.intake = SessionIntake(self.verdicts, IDLE_MS, self.announced.append, self.cache)
        self.offset = 0

    async def fold(self, *commands: SessionCommand, at: int = 0) -> list[Verdict]:
        futures = [self.verdicts.expect(command.command) for command in commands]
        draft = Draft(self.store)
        for command in commands:
            self.intake.fold(draft, delivered(self.offset, SESSION, command, at))
            self.offset += 1
            draft.keep()
        assert not any(future.done() for future in futures)
        write_draft(draft, self.intake)
        return [future.result() for future in futures]

    def due(self) -> list[int]:
        return [due for due, _ in self.store.due(2**60, 100)]


@pytest.fixture
def house() -> House:
    return House()


async def test_verdicts_follow_write_in_order(house: House) -> None:
    verdicts = await house.fold(STREAM, Chunk("a", 0, b"aa"), Chunk("b", 0, b"bb"), Sealed("s"), Chunk("c", 1, b"c"))
    assert [verdict.status for verdict in verdicts] == [200, 200, 409, 204, 403]
    assert len(house.verdicts) == 0


async def test_chunk_row_references_log_and_audio_is_cached(house: House) -> None:
    await house.fold(STREAM, Chunk("a", 0, b"sound"))
    [row] = house.store.audio(SESSION, 0, 9)
    assert (row.offset, row.length, row.digest) == (1, 5, xxhash.xxh3_128_digest(b"sound"))
    assert house.cache.get(2, 1) == b"sound"
    assert house.store.references.lowest() == 1


async def test_repeated_upload_with_key_gets_first_verdict(house: House) -> None:
    first = await house.fold(STREAM, Chunk("a", 0, b"sound", b"key"), Chunk("b", 1, b"more"))
    again, other, without = await house.fold(
        Chunk("c", 0, b"sound", b"key"), Chunk("d", 0, b"noise", b"key"), Chunk("e", 0, b"sound")
    )
    assert again == first[1]
    assert other.status == without.status == 409
    assert house.store.audio(SESSION, 2, 3) == []


async def test_stream_has_work_per_chunk_and_file_when_complete() -> None:
    stream, file = House(), House()
    await stream.fold(STREAM, Chunk("a", 0, b"a"))
    await file.fold(FILE, Chunk("a", 0, b"a"))
    assert [list(changes.work) for changes in stream.announced] == [[SESSION]]
    assert [list(changes.work) for changes in file.announced] == [[]]
    await file.fold(Sealed("s"))
    assert [list(changes.work) for changes in file.announced] == [[], [SESSION]]


async def test_deletion_releases_rows_references_and_cache(house: House) -> None:
    await house.fold(STREAM, Chunk("a", 0, b"a", b"key"), Chunk("b", 1, b"b"))
    await house.fold(Chunk("c", 2, b"c"), Deleted("d"))
    assert [key for key in house.partition.rows if key.startswith(keys.SESSION)] == []
    assert house.store.references.lowest() is None
    assert house.cache.size == 0
    assert (list(house.announced[-1].work), list(house.announced[-1].gone)) == ([], [SESSION])
    assert (await house.fold(Chunk("e", 3, b"d")))[0].status == 404


async def test_active_session_extends_its_deadline(house: House) -> None:
    await house.fold(STREAM, at=0)
    await house.fold(Chunk("a", 0, b"a"), at=900)
    assert house.due() == [1000]
    await house.fold(Expired("sweep", IDLE_MS, 1000), at=1000)
    assert house.due() == [1900]
    assert house.store.head(SESSION) is not None


async def test_idle_session_is_deleted_with_its_deadline(house: House) -> None:
    await house.fold(STREAM, at=0)
    await house.fold(Expired("sweep", IDLE_MS, 1000), at=1001)
    assert house.partition.rows == {}


async def test_deleted_session_leaves_index_at_deadline(house: House) -> None:
    await house.fold(STREAM, Deleted("d"), at=0)
    assert house.due() == [1000]
    await house.fold(Expired("sweep", IDLE_MS, 1000), at=1000)
    assert house.due() == []


async def test_derived_id_of_deleted_session_stays_taken_for_an_hour(house: House) -> None:
    opened = msgspec.structs.replace(STREAM, derived=True)
    await house.fold(opened, Chunk("a", 0, b"a", b"key"), Deleted("d"), at=0)
    assert [key for key in house.partition.rows if key.startswith(keys.SESSION)] == [
        house.store.row_key(SESSION, keys.HEAD)
    ]
    assert house.due() == [1000]
    await house.fold(Expired("sweep", IDLE_MS, 1000), at=1000)
    assert house.due() == [TOMBSTONE_MS]
    assert [verdict.status for verdict in await house.fold(opened, at=TOMBSTONE_MS)] == [409]
    await house.fold(Expired("sweep", IDLE_MS, TOMBSTONE_MS), at=TOMBSTONE_MS + 1)
    assert house.partition.rows == {}
    assert house.due() == []


async def test_derived_id_of_expired_session_stays_taken(house: House) -> None:
    await house.fold(msgspec.structs.replace(STREAM, derived=True), at=0)
    await house.fold(Expired("sweep", IDLE_MS, 1000), at=1001)
    assert house.due() == [1001 + TOMBSTONE_MS]


async def test_predict_takes_next_number(house: House) -> None:
    verdicts = await house.fold(STREAM, *(Chunk(f"p{n}", None, b"a", predict=True) for n in range(3)))
    assert [verdict.next for verdict in verdicts] == [0, 1, 2, 3]
    head = house.store.head(SESSION)
    assert head is not None
    assert (head.state, head.predicts) == (SessionState.WRITABLE, True)
