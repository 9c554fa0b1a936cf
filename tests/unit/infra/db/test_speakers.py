"""Registered speakers in the database: stored data, the caps under races, and complete deletion."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from sqlalchemy import text

from infra.db import speakers
from infra.db.accounts import Accounts
from infra.db.database import Database
from infra.db.speakers import SqlSpeakerStore
from streams.clients.embeddings import EmbeddingModel
from streams.speakers.speaker_store import EnrolledSpeaker, SpeakerStore, VoiceSample
from tests.unit.infra.conftest import AWAY, SQLITE, run, stored
from tests.unit.streams.clocks import HandClock
from topics.errors import NotFound, RuleBroken, Unavailable
from topics.keys import new_id
from topics.ports.speakers import MAX_SAMPLES, MAX_SPEAKERS

DIMENSION = 128
MODEL = EmbeddingModel("mini", "ab" * 32)
HOUR = 3600


def sample(seed: int = 0, voice: str | None = None) -> VoiceSample:
    vector = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return VoiceSample(new_id(), vector, MODEL, 4000 + seed, voice)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1.5)


@pytest.fixture
def store(database: Database, clock: HandClock) -> SpeakerStore:
    return SqlSpeakerStore(database, clock)


@pytest.fixture
def zoo(loop: asyncio.Runner, database: Database) -> str:
    return loop.run(Accounts(database).create_organization("Zoo"))[0].id


async def keep(store: SpeakerStore, organization: str, speaker: str, made: VoiceSample) -> EnrolledSpeaker:
    """Add a sample as a registration does."""
    if made.voice is not None:
        await store.reserve(made.voice)
    return await store.add(organization, speaker, made)


def plain(enrolled: EnrolledSpeaker | None) -> object:
    """Return a comparable form: vectors as bytes."""
    return msgspec.to_builtins(enrolled, enc_hook=lambda vector: vector.tobytes(), builtin_types=(bytes,))


async def test_speakers_are_sorted_with_samples_in_order(store: SpeakerStore, zoo: str, clock: HandClock) -> None:
    given = [sample(n, f"{zoo}/{n}") for n in range(4)]
    # "b" follows "B" in byte order, and precedes it in many collations.
    await keep(store, zoo, "b", given[0])
    clock.now -= 1
    anna = await keep(store, zoo, "b", given[1])
    await keep(store, zoo, "B", given[2])
    await keep(store, zoo, "a_1", given[3])
    assert plain(anna) == plain(EnrolledSpeaker("b", 1500, tuple(given[:2]))), "in order, though the clock went back"
    assert plain(await store.speaker(zoo, "b")) == plain(anna)
    assert [one.name for one in await store.enrolled(zoo)] == ["B", "a_1", "b"]
    assert await store.name(zoo, "b", "Бob Müller")
    assert not await store.name(zoo, "nobody", "Nobody")
    named = await keep(store, zoo, "b", sample(9))
    assert (named.name, named.display_name, len(named.samples)) == ("b", "Бob Müller", 3)
    assert [one.display_name for one in await store.enrolled(zoo)] == [None, None, "Бob Müller"]
    assert await store.name(zoo, "b", None)
    assert (await store.enrolled(zoo))[2].display_name is None
    vector = anna.samples[0].vector
    assert vector.dtype == np.float32
    assert not vector.flags.writeable


async def test_vectors_are_stored_as_little_endian_float32(database: Database, store: SpeakerStore, zoo: str) -> None:
    await store.add(zoo, "Anna", msgspec.structs.replace(sample(), vector=np.array([1, -2], dtype=">f4")))
    async with database.reading() as connection:
        stored = await connection.scalar(text("SELECT vector FROM samples"))
    assert stored == bytes.fromhex("0000803f000000c0")


async def test_count_includes_speakers_of_other_models(store: SpeakerStore, zoo: str) -> None:
    assert (await store.count(), await store.count(MODEL)) == (0, 0)
    await store.add(zoo, "anna", sample(1))
    await store.add(zoo, "anna", sample(2))
    await store.add(zoo, "jo", sample(3))
    assert (await store.count(), await store.count(MODEL)) == (2, 0)
    for other in (EmbeddingModel("mini", "cd" * 32), EmbeddingModel("maxi", MODEL.sha256)):
        assert await store.count(other) == 2
    await store.add(zoo, "jo", msgspec.structs.replace(sample(4), model=other))
    assert (await store.count(MODEL), await store.count(other)) == (1, 2)


async def test_sample_vector_is_replaced(store: SpeakerStore, zoo: str) -> None:
    first, second = sample(1), sample(2)
    await store.add(zoo, "Anna", first)
    await store.add(zoo, "Anna", second)
    again = msgspec.structs.replace(first, vector=sample(3).vector, model=EmbeddingModel("other", "cd" * 32))
    assert await store.replace(zoo, "Anna", again) is True
    assert await store.replace(zoo, "Ben", again) is False
    assert await store.replace("another", "Anna", again) is False
    assert await store.replace(zoo, "Anna", sample(4)) is False
    assert plain(await store.speaker(zoo, "Anna")) == plain(EnrolledSpeaker("Anna", 1500, (again, second)))


@pytest.mark.parametrize(
    ("most", "words", "name"),
    [
        (MAX_SPEAKERS, "speaker_max_count(50) exceeded", "speaker_{}"),
        (MAX_SAMPLES, "voice_max_count(20) exceeded", "speaker"),
    ],
)
async def test_caps_hold_under_concurrent_adds(
    others: list[Database], most: int, words: str, name: str, store: SpeakerStore, zoo: str
) -> None:
    rosters = store, SqlSpeakerStore(others[0])
    adding = (rosters[n % 2].add(zoo, name.format(n), sample(n)) for n in range(60))
    ended = await asyncio.gather(*adding, return_exceptions=True)
    refused = [str(one) for one in ended if isinstance(one, RuleBroken)]
    assert refused == [words] * (60 - most)
    assert sum(isinstance(one, EnrolledSpeaker) for one in ended) == most
    assert sum(len(one.samples) for one in await store.enrolled(zoo)) == most
    with pytest.raises(RuleBroken) as told:
        await store.check_room(zoo, name.format("new"[: most - MAX_SAMPLES]))
    assert str(told.value) == words
    for known in (await store.enrolled(zoo))[: most - MAX_SAMPLES]:
        await store.check_room(zoo, known.name)
    await store.remove(zoo, (await store.enrolled(zoo))[0].name)
    await store.check_room(zoo, name.format("new"))


async def test_adding_to_deleted_organization_fails(database: Database, store: SpeakerStore, zoo: str) -> None:
    await Accounts(database).delete_organization(zoo)
    with pytest.raises(NotFound):
        await store.add(zoo, "Anna", sample())


async def test_unclaimed_voice_file_is_discarded_after_one_hour(
    monkeypatch: pytest.MonkeyPatch, store: SpeakerStore, zoo: str, clock: HandClock
) -> None:
    monkeypatch.setattr(speakers, "MAX_SAMPLES", 1)
    for voice in "taken", "lost", "later":
        await store.reserve(voice)
        clock.now += 1
    await store.add(zoo, "Anna", sample(0, "taken"))
    with pytest.raises(RuleBroken):  # It stays reserved.
        await store.add(zoo, "Anna", sample(1, "lost"))
    clock.now = 1.5 + HOUR
    assert await store.to_discard() == []
    clock.now += 1
    assert await store.to_discard() == ["lost"]
    clock.now += 1
    assert await store.to_discard() == ["lost", "later"]
    await store.discarded(["lost", "never seen"])
    await store.discarded([])
    assert await store.to_discard() == ["later"]
    with pytest.raises(Unavailable):
        await store.add(zoo, "Ben", sample(2, "lost"))
    assert [one.name for one in await store.enrolled(zoo)] == ["Anna"]


async def test_removal_returns_voice_files(database: Database, store: SpeakerStore, zoo: str) -> None:
    for n, voice in enumerate(["one", None, "two"]):
        await keep(store, zoo, "Anna", sample(n, voice))
    await keep(store, zoo, "Ben", sample(4, "other"))
    assert await store.remove(zoo, "Anna") == ["one", "two"]
    assert await store.remove(zoo, "Anna") is None
    assert await store.speaker(zoo, "Anna") is None
    assert await store.to_discard() == ["one", "two"]
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM samples")) == 1


async def test_deleting_organization_discards_its_voice_files(
    database: Database, store: SpeakerStore, zoo: str, clock: HandClock
) -> None:
    accounts = Accounts(database, clock)
    park = (await accounts.create_organization("Park"))[0].id
    for organization, voice in (zoo, "one"), (zoo, "two"), (park, "other"):
        await keep(store, organization, f"Anna_{voice}", sample(0, voice))
    await accounts.delete_organization("Zoo")
    assert await store.enrolled(zoo) == []
    assert await store.to_discard() == ["one", "two"]
    assert len(await store.enrolled(park)) == 1


@SQLITE
async def test_removal_succeeds_despite_open_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: SpeakerStore, zoo: str
) -> None:
    monkeypatch.setattr("infra.db.erasure.SCRUB_SECONDS", 0.01)
    await store.add(zoo, "Anna_Kim", sample(0))
    await store.add(zoo, "Ben", sample(1))
    with closing(sqlite3.connect(tmp_path / "control" / "earshot.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM speakers").fetchall()
        assert await store.remove(zoo, "Anna_Kim") == []
        assert await store.speaker(zoo, "Anna_Kim") is None
        reader.execute("COMMIT")
    await store.remove(zoo, "Ben")
    assert b"Anna_Kim" not in stored(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_postgresql_frees_space_of_removed_speaker(database: Database, store: SpeakerStore, zoo: str) -> None:
    await store.add(zoo, "Anna", sample())
    await store.remove(zoo, "Anna")
    async with database.reading() as connection:
        size = await connection.scalar(text("SELECT pg_relation_size('samples') + pg_relation_size('speakers')"))
    assert size == 0


def test_scrub_never_fails(tmp_path: Path) -> None:
    for url in (f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}", f"sqlite+aiosqlite:///{tmp_path}", AWAY):
        run(url, Database.scrub)
