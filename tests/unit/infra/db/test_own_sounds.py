"""Own sounds in the database: marks, learnt heads, caps, and deletion with the project."""

from pathlib import Path
from unittest import mock

import msgspec
import pytest
from sqlalchemy import text

from infra.db import own_sounds
from infra.db.accounts import Accounts
from infra.db.database import Database
from infra.db.own_sounds import SqlOwnSounds
from infra.db.projects import SqlProjects
from tests.unit.infra.conftest import SQLITE, stored
from topics.choices import Choices
from topics.errors import Conflict, NotFound
from topics.hearing import OwnSound
from topics.ports.directory import Principal
from topics.ports.own_sounds import LearntFigures, Mark

GRAPH = "5" * 64
MARK = Mark("m1", True, "job", 1000, 2500, True, GRAPH, bytes(range(6)))
KETTLE = OwnSound("Kettle", GRAPH, b"\x01" * 8, b"\x02" * 8)


async def test_own_sound_is_marked_learnt_and_removed(database: Database) -> None:
    accounts, sounds = Accounts(database), SqlOwnSounds(database, lambda: 1.0)
    await accounts.create_organization("Zoo")
    apes, key = await accounts.create_project("apes")
    assert await accounts.project_of(key) == Principal(apes.id, apes.organization)
    kept = Choices(keep_embeddings=True)
    await SqlProjects(database).choose(apes.id, {"keep_embeddings": True})
    await sounds.keep_mark(apes.id, "Kettle", MARK)
    await sounds.keep_mark(apes.id, "Kettle", msgspec.structs.replace(MARK, id="m2", right=False))
    await sounds.keep_mark(apes.id, "Kettle", msgspec.structs.replace(MARK, id="m3", job=False, start_ms=0))
    await sounds.keep_mark(apes.id, "Kettle", msgspec.structs.replace(MARK, id="m4", graph="6" * 64, source="s"))
    (taught,) = await sounds.taught(apes.id, GRAPH)
    assert [(mark.id, mark.right, mark.embeddings) for mark in taught.marks] == [
        ("m3", True, b""),
        ("m2", False, b""),
        ("m4", True, b""),
    ]
    assert (taught.name, taught.on, taught.learnt_at, taught.figures, taught.fits) == ("Kettle", False, None, {}, True)
    assert {mark.id for mark in await sounds.marks(apes.id, "Kettle", GRAPH)} == {"m2", "m3"}
    for early in (sounds.learnt(apes.id, "Kettle"), sounds.report(apes.id, "Kettle", True)):
        with pytest.raises(Conflict, match="has to be learnt first"):
            await early
    figures = {"streams": LearntFigures(12, 0.9, 0.3, ("rain",))}
    await sounds.keep_learnt(apes.id, KETTLE, figures)
    await sounds.report(apes.id, "Kettle", True)
    assert (await accounts.project_of(key)) == Principal(apes.id, apes.organization, choices=kept, own=(KETTLE,))
    (taught,) = await sounds.taught(apes.id, "6" * 64)
    assert (taught.on, taught.learnt_at, taught.fits) == (True, 1000, False)
    assert taught.figures["streams"].found == 0.9
    await sounds.unmark(apes.id, "Kettle", "m2")
    with pytest.raises(NotFound, match="no such mark"):
        await sounds.unmark(apes.id, "Kettle", "m2")
    # Isolated from another project.
    bats, _ = await accounts.create_project("bats")
    assert await sounds.taught(bats.id, GRAPH) == []
    for foreign in (sounds.learnt(bats.id, "Kettle"), sounds.remove(bats.id, "Kettle")):
        with pytest.raises(NotFound, match="no such sound"):
            await foreign
    await sounds.remove(apes.id, "Kettle")
    assert await sounds.taught(apes.id, GRAPH) == []
    assert (await accounts.project_of(key)) == Principal(apes.id, apes.organization, choices=kept)


async def test_sounds_and_marks_per_project_are_capped(database: Database) -> None:
    accounts, sounds = Accounts(database), SqlOwnSounds(database)
    await accounts.create_organization("Zoo")
    apes, _ = await accounts.create_project("apes")
    with mock.patch.multiple(own_sounds, MOST_SOUNDS=2, MOST_ON=1, MOST_MARKS=1):
        for name in ("Kettle", "Lathe"):
            await sounds.keep_mark(apes.id, name, MARK if name == "Kettle" else msgspec.structs.replace(MARK, id="m2"))
            await sounds.keep_learnt(apes.id, msgspec.structs.replace(KETTLE, name=name), {})
        with pytest.raises(Conflict, match="teaches 2 sounds, its limit"):
            await sounds.keep_mark(apes.id, "Bell", msgspec.structs.replace(MARK, id="m3"))
        with pytest.raises(Conflict, match="has 1 marks, its limit"):
            await sounds.keep_mark(apes.id, "Kettle", msgspec.structs.replace(MARK, id="m4", start_ms=9))
        # A mark of the same passage replaces it.
        await sounds.keep_mark(apes.id, "Kettle", msgspec.structs.replace(MARK, id="m5"))
        await sounds.report(apes.id, "Kettle", True)
        await sounds.report(apes.id, "Kettle", True)
        with pytest.raises(Conflict, match="1 own sounds on"):
            await sounds.report(apes.id, "Lathe", True)
    await accounts.delete_project("apes")
    assert await sounds.taught(apes.id, GRAPH) == []
    # Keys stay cached for a while after their project was deleted.
    with pytest.raises(NotFound, match="this project was deleted"):
        await sounds.keep_mark(apes.id, "Kettle", MARK)


@SQLITE
@pytest.mark.parametrize("removal", ["mark", "sound", "project"])
async def test_removed_embeddings_are_erased_from_all_files(tmp_path: Path, removal: str, database: Database) -> None:
    accounts, sounds = Accounts(database), SqlOwnSounds(database)
    await accounts.create_organization("Zoo")
    apes, _ = await accounts.create_project("apes")
    await sounds.keep_mark(apes.id, "Kettle", msgspec.structs.replace(MARK, embeddings=bytes(range(192))))
    assert bytes(range(192)) in stored(tmp_path)
    match removal:
        case "mark":
            await sounds.unmark(apes.id, "Kettle", MARK.id)
        case "sound":
            await sounds.remove(apes.id, "Kettle")
        case _:
            await accounts.delete_project("apes")
    assert bytes(range(100, 150)) not in stored(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_postgresql_frees_space_of_removed_sound(database: Database) -> None:
    accounts, sounds = Accounts(database), SqlOwnSounds(database)
    await accounts.create_organization("Zoo")
    apes, _ = await accounts.create_project("apes")
    await sounds.keep_mark(apes.id, "Kettle", MARK)
    await sounds.remove(apes.id, "Kettle")
    async with database.reading() as connection:
        size = await connection.scalar(text("SELECT pg_relation_size('own_sounds') + pg_relation_size('own_marks')"))
    assert size == 0
