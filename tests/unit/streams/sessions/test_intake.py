"""The intake agent: rows, verdicts and work that result from commands. The rules have their own tests."""

from unittest import mock

import msgspec
import pytest
import xxhash

from streams.disk import DiskFull
from streams.folding.batch import fold_batch, write_draft
from streams.folding.draft import ERASED_ROWS, Draft
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import delivered
from tests.unit.streams.sessions.world import SESSION, World
from tests.unit.streams.verdicts import expect
from topics import keys
from topics.folding import Verdict
from topics.sessions.commands import MOST_RECENT
from topics.sessions.records import Chunk, Deleted, Expired, Opened, Sealed, SessionCommand
from topics.sessions.rules import FILE_MS, TOMBSTONE_MS

IDLE_MS = 1000
STREAM = Opened("open", "stream", "audio/wav", "p", 1000, 500)
FILE = Opened("open", "file", "audio/wav", "p", 1000, 500)


class House(World):
    """`ask` folds one batch and returns the verdicts in order."""

    idle_ms = IDLE_MS
    tidies = False

    async def ask(self, *commands: SessionCommand, at: int = 0, given_up: str = "") -> list[Verdict]:
        futures = [expect(self.verdicts, command.command) for command in commands if command.command != given_up]
        draft = Draft(self.store)
        for command in commands:
            self.log.append(delivered(len(self.log), SESSION, command, at))
            self.intake.fold(draft, self.log[-1])
            draft.keep()
        assert not any(future.done() for future in futures)
        write_draft(draft, self.intake)
        self.partition.sync()
        return [future.result() for future in futures]

    def redeliver(self, offset: int, *commands: SessionCommand) -> list[bytes]:
        """Fold a batch of commands that were folded before, the first at `offset`; return the keys of logged rows."""
        logged = len(self.partition.changelog)
        records = [delivered(offset + place, SESSION, command) for place, command in enumerate(commands)]
        assert fold_batch(self.store, records, self.intake) == len(records)
        return [key for key, _ in self.partition.changelog[logged:]]

    def due(self) -> list[int]:
        return [due for due, _ in self.store.due(2**60, 100)]


@pytest.fixture
def house() -> House:
    return House()


async def test_chunk_whose_sender_knows_no_verdict_is_noted_in_the_head(house: House) -> None:
    await house.ask(STREAM)
    verdicts = await house.ask(Chunk("a", 0, b"aa"), Chunk("b", 0, b"aa"), Chunk("c", 0, b"aa"), given_up="a")
    assert [verdict.status for verdict in verdicts] == [200, 409]
    await house.ask(Chunk("d", 1, b"dd"), given_up="d")
    head = SessionStore(house.partition).head(SESSION)
    assert head is not None
    assert head.doubted == (1, xxhash.xxh3_128_digest(b"dd"))


async def test_verdict_on_deletion_waits_for_changelog(house: House) -> None:
    """Otherwise a stand-by could show what was deleted."""
    await house.ask(STREAM)
    verdict = expect(house.verdicts, "d")
    house.redeliver(1, Deleted("d"))
    assert house.store.head(SESSION) is None
    assert not verdict.done()
    assert house.partition.changelog[-1] == (house.store.row_key(SESSION, keys.HEAD), None)
    house.partition.sync()
    assert verdict.result().status == 204


async def test_verdicts_follow_write_in_order(house: House) -> None:
    verdicts = await house.ask(STREAM, Chunk("a", 0, b"aa"), Chunk("b", 0, b"bb"), Sealed("s"), Chunk("c", 1, b"c"))
    assert [verdict.status for verdict in verdicts] == [200, 200, 409, 204, 403]
    assert len(house.verdicts) == 0


async def test_chunk_row_references_log_and_audio_is_cached(house: House) -> None:
    await house.ask(STREAM, Chunk("a", 0, b"sound"))
    [row] = house.store.audio(SESSION, 0, 9)
    assert (row.offset, row.length, row.digest) == (1, 5, xxhash.xxh3_128_digest(b"sound"))
    assert await house.audio.chunk(0, row) == b"sound"
    assert house.store.references.lowest() == 1


async def test_all_chunks_of_a_file_and_old_ones_of_a_stream_have_rows(house: House) -> None:
    def numbers() -> list[int]:
        prefix = house.store.row_key(SESSION, keys.AUDIO)
        return [keys.number_of(key) for key in house.partition.rows if key.startswith(prefix)]

    chunks = MOST_RECENT + 2
    await house.ask(STREAM, *(Chunk(str(number), number, b"s") for number in range(MOST_RECENT)))
    assert numbers() == []
    await house.ask(*(Chunk(str(number), number, b"s") for number in range(MOST_RECENT, chunks)))
    assert numbers() == [0, 1]
    for first, stop in ((0, chunks), (1, 2), (1, 3), (2, 4), (chunks - 1, chunks), (5, chunks + 9)):
        found = [row.offset for row in house.store.audio(SESSION, first, stop)]
        assert found == list(range(1 + first, 1 + min(stop, chunks)))
    await house.ask(Deleted("d"), FILE, Chunk("a", 0, b"a"))
    assert numbers() == [0]


async def test_audio_of_long_deleted_session_is_released_in_steps(house: House) -> None:
    chunks = 2 * ERASED_ROWS + 500
    await house.ask(STREAM, *(Chunk(str(number), number, b"s") for number in range(chunks)))
    logged = len(house.partition.changelog)
    await house.ask(Deleted("d"))
    assert house.store.head(SESSION) is None
    assert list(house.announced[-1].leftovers) == [SESSION]
    assert len(house.partition.changelog) - logged < ERASED_ROWS + 10
    assert house.store.references.lowest() == 1 + ERASED_ROWS
    released: list[int] = []
    while not house.store.purge(SESSION, lambda store, offset: released.append(offset)):
        pass
    assert released == list(range(1 + ERASED_ROWS, 1 + chunks - MOST_RECENT)), "the head had the others"
    assert house.store.audio(SESSION, 0, chunks) == []
    assert list(house.store.unsettled_ids()) == []


@pytest.mark.parametrize("opening", [FILE, STREAM])
@pytest.mark.parametrize("is_numbered", [True, False])
async def test_redelivered_chunk_of_long_session_rewrites_only_its_rows(
    house: House, is_numbered: bool, opening: Opened
) -> None:
    """Otherwise the takeover of a long session would hold the loop and fill the log's queue."""
    commands: list[SessionCommand] = [opening]
    commands += [Chunk(str(number), number if is_numbered else None, b"s") for number in range(2 * ERASED_ROWS)]
    await house.ask(*commands)
    for number in (0, 1, ERASED_ROWS, 2 * ERASED_ROWS - 2):
        # A stream's reference moves into a row with a later chunk.
        numbers = [number] if opening is FILE else [number, number - MOST_RECENT]
        keys_of = [house.store.row_key(SESSION, keys.AUDIO, one) for one in numbers if one >= 0]
        assert house.redeliver(1 + number, commands[1 + number]) == [
            key for key in keys_of if key in house.partition.rows
        ]


async def test_head_follows_rows_of_redelivered_commands(house: House) -> None:
    """The changelog never has a head whose commands lack rows there: nothing could recreate them after a crash."""
    commands: list[SessionCommand] = [FILE, Chunk("a", 0, b"a", b"key"), Chunk("b", 1, b"b"), Chunk("c", None, b"c")]
    await house.ask(*commands)
    head = house.store.row_key(SESSION, keys.HEAD)
    assert head not in house.redeliver(0, *commands[:3])
    with mock.patch.object(house.partition, "write", side_effect=DiskFull), pytest.raises(DiskFull):
        house.redeliver(3, commands[3])
    assert head not in house.redeliver(1, *commands[1:3])
    logged = house.redeliver(1, *commands[1:])
    audio = [house.store.row_key(SESSION, keys.AUDIO, number) for number in range(3)]
    before_head = logged[: logged.index(head)]
    assert {*audio, house.store.row_key(SESSION, keys.RECEIPT, 0)} <= set(before_head)


async def test_deletion_releases_rows_references_and_cache(house: House) -> None:
    await house.ask(STREAM, Chunk("a", 0, b"a", b"key"), Chunk("b", 1, b"b"))
    await house.ask(Chunk("c", 2, b"c"), Deleted("d"))
    assert [key for key in house.partition.rows if key.startswith(keys.SESSION)] == []
    assert house.store.references.lowest() is None
    assert house.audio.size == 0
    assert (list(house.announced[-1].work), list(house.announced[-1].gone)) == ([], [SESSION])
    assert (await house.ask(Chunk("e", 3, b"d")))[0].status == 404


async def test_expiry_ends_session_unless_command_came_since(house: House) -> None:
    await house.ask(STREAM, Chunk("a", 0, b"a"), at=900)
    assert house.due() == [1900]
    assert [verdict.status for verdict in await house.ask(Expired("sweep", 0, 1900), at=2000)] == [409]
    assert house.due() == [1900]
    assert house.store.head(SESSION) is not None
    await house.ask(Expired("sweep", 1, 1900), at=2001)
    assert house.partition.rows == {}
    # A deleted session leaves the index at its deadline.
    await house.ask(STREAM, Deleted("d"), at=2000)
    assert house.due() == [3000]
    await house.ask(Expired("sweep", -1, 3000), at=3000)
    assert house.due() == []


async def test_file_that_is_sealed_after_sweep_looked_is_kept(house: House) -> None:
    """Its audio was accepted, and is analysed only once it is complete."""
    await house.ask(FILE, Chunk("a", 0, b"a"), at=0)
    verdicts = await house.ask(Sealed("s"), Expired("sweep", 1, 1000), at=1001)
    assert [verdict.status for verdict in verdicts] == [204, 409]
    assert house.head.analysable


async def test_upload_of_file_is_due_within_a_day(house: House) -> None:
    """Until it is complete, the log keeps its audio and all that came after."""
    await house.ask(FILE, at=1)
    await house.ask(Chunk("a", 0, b"a"), at=FILE_MS)
    assert house.head.due(IDLE_MS) == 1 + FILE_MS
    assert house.head.terms(IDLE_MS) == ((FILE_MS, IDLE_MS), (1, FILE_MS))


@pytest.mark.parametrize(("end", "due"), [(Deleted("d"), 1000), (Expired("sweep", 1, 1000), TOMBSTONE_MS)])
async def test_derived_id_of_ended_session_stays_taken_for_an_hour(house: House, end: SessionCommand, due: int) -> None:
    opened = msgspec.structs.replace(STREAM, derived=True)
    await house.ask(opened, Chunk("a", 0, b"a", b"key"), end, at=0)
    assert [key for key in house.partition.rows if key.startswith(keys.SESSION)] == [
        house.store.row_key(SESSION, keys.HEAD)
    ]
    assert house.due() == [due]
    assert house.head.terms(IDLE_MS) == ((0, TOMBSTONE_MS),)
    # The sweeper had seen the session before it was deleted.
    await house.ask(Expired("sweep", 1, due), at=1000)
    assert house.due() == [TOMBSTONE_MS]
    assert [verdict.status for verdict in await house.ask(opened, at=TOMBSTONE_MS)] == [409]
    await house.ask(Expired("sweep", 2, TOMBSTONE_MS), at=TOMBSTONE_MS + 1)
    assert house.partition.rows == {}
    assert house.due() == []
