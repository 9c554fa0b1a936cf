"""Sounds that projects teach, in the control plane's database; the caps hold under concurrent writes."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec
from sqlalchemy import RowMapping, Select, and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.database import Store
from infra.db.schema import own_marks, own_sounds, projects
from topics.errors import Conflict, NotFound
from topics.hearing import OwnSound
from topics.keys import new_id
from topics.ports.own_sounds import MOST_MARKS, MOST_ON, MOST_SOUNDS, LearntFigures, Mark, TaughtSound

NO_PROJECT: Final = "this project was deleted"
NO_SOUND: Final = "the project teaches no such sound"
NO_MARK: Final = "the sound has no such mark"
NOT_LEARNT: Final = "the sound has to be learnt first"

_figures: Final = msgspec.json.Decoder(dict[str, LearntFigures])
_LEARNT: Final = (own_sounds.c.name, own_sounds.c.graph, own_sounds.c.stream, own_sounds.c.recording)
_MARK: Final = tuple(
    own_marks.c[name] for name in ("id", "job", "source", "start_ms", "end_ms", "correct", "graph", "embeddings")
)
#: Without embeddings, which few readers need.
_SHOWN: Final = _MARK[:-1]


class SqlOwnSounds(Store):
    """Stores sounds and marks of projects."""

    async def taught(self, project: str, graph: str | None) -> Sequence[TaughtSound]:
        """Return the sounds of a project by name; `graph` is the SHA-256 of the second model in use."""
        columns = ("name", "created_at", "reported", "learnt_at", "figures", "graph")
        about = [own_sounds.c[name].label(f"sound_{name}") for name in columns]
        query = (
            select(*about, *_SHOWN)
            .outerjoin_from(own_sounds, own_marks)
            .where(own_sounds.c.project_id == project)
            .order_by(own_sounds.c.name, own_marks.c.source, own_marks.c.start_ms)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [_taught(list(of), graph) for _, of in groupby(rows, key=lambda row: row["sound_name"])]

    async def keep_mark(self, project: str, name: str, mark: Mark) -> None:
        """Keep a mark, replacing any mark of the same passage; the first mark creates the sound.

        Raises:
            Conflict: the project or the sound is at its limit.
            NotFound: the project was deleted.
        """
        # Writers run one at a time, so these counts are final.
        async with self._database.writing() as connection:
            sound = await connection.scalar(_id_of(project, name))
            if sound is None:
                if await connection.scalar(select(projects.c.id).where(projects.c.id == project)) is None:
                    raise NotFound(NO_PROJECT)
                query = select(func.count()).where(own_sounds.c.project_id == project)
                if (await connection.scalar(query) or 0) >= MOST_SOUNDS:
                    raise Conflict(f"the project teaches {MOST_SOUNDS} sounds, its limit: delete one")
                sound = new_id()
                row = {"id": sound, "project_id": project, "name": name, "created_at": self._now()}
                await connection.execute(insert(own_sounds).values(row))
            same = (own_marks.c.source == mark.source, own_marks.c.start_ms == mark.start_ms)
            await connection.execute(
                delete(own_marks).where(own_marks.c.sound_id == sound, *same, own_marks.c.end_ms == mark.end_ms)
            )
            count = await connection.scalar(select(func.count()).where(own_marks.c.sound_id == sound)) or 0
            if count >= MOST_MARKS:
                raise Conflict(f"the sound has {MOST_MARKS} marks, its limit: delete one")
            values = msgspec.structs.asdict(mark)
            values["correct"] = values.pop("right")
            await connection.execute(insert(own_marks).values(sound_id=sound, **values))

    async def unmark(self, project: str, name: str, mark: str) -> None:
        """Delete a mark.

        Raises:
            NotFound: there is no such mark.
        """
        one = and_(own_marks.c.id == mark, own_marks.c.sound_id == _id_of(project, name).scalar_subquery())
        async with self._database.writing() as connection:
            if not (await connection.execute(delete(own_marks).where(one))).rowcount:
                raise NotFound(NO_MARK)
        await self._database.scrub()

    async def marks(self, project: str, name: str, graph: str) -> Sequence[Mark]:
        """Return the marks of a sound whose embeddings this graph made, with the embeddings.

        Raises:
            NotFound: there is no such sound.
        """
        async with self._database.reading() as connection:
            sound = await _existing(connection, project, name)
            query = select(*_MARK).where(own_marks.c.sound_id == sound, own_marks.c.graph == graph)
            return [Mark(*row) for row in await connection.execute(query)]

    async def keep_learnt(self, project: str, sound: OwnSound, figures: dict[str, LearntFigures]) -> None:
        """Store what was learnt.

        Raises:
            NotFound: the sound was deleted meanwhile.
        """
        values = msgspec.structs.asdict(sound)
        values |= {"learnt_at": self._now(), "figures": msgspec.json.encode(figures).decode()}
        await self._change(project, sound.name, values)

    async def report(self, project: str, name: str, on: bool) -> None:
        """Turn reporting of a sound on or off.

        Raises:
            Conflict: the sound was not learnt yet, or the project's limit of sounds that are on is reached.
            NotFound: there is no such sound.
        """
        if on:
            await self.learnt(project, name)
        others = select(func.count()).where(
            own_sounds.c.project_id == project, own_sounds.c.reported, own_sounds.c.name != name
        )
        await self._change(project, name, {"reported": on}, others if on else None)

    async def remove(self, project: str, name: str) -> None:
        async with self._database.writing() as connection:
            sound = await _existing(connection, project, name)
            await connection.execute(delete(own_sounds).where(own_sounds.c.id == sound))
        await self._database.scrub()

    async def learnt(self, project: str, name: str) -> OwnSound:
        """Return what was learnt of a sound.

        Raises:
            Conflict: nothing was learnt yet.
            NotFound: there is no such sound.
        """
        query = select(*_LEARNT).where(own_sounds.c.project_id == project, own_sounds.c.name == name)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NotFound(NO_SOUND)
        if row.graph is None:
            raise Conflict(NOT_LEARNT)
        return OwnSound(*row)

    async def _change(
        self, project: str, name: str, values: dict[str, object], others: Select[int] | None = None
    ) -> None:
        async with self._database.writing() as connection:
            if others is not None and (await connection.scalar(others) or 0) >= MOST_ON:
                raise Conflict(f"the project has {MOST_ON} own sounds on, its limit: switch one off")
            sound = await _existing(connection, project, name)
            await connection.execute(update(own_sounds).where(own_sounds.c.id == sound).values(**values))


async def sounds_on(connection: AsyncConnection, project: str) -> tuple[OwnSound, ...]:
    """Return a project's reported sounds by name."""
    query = select(*_LEARNT).where(own_sounds.c.project_id == project, own_sounds.c.reported)
    return tuple(OwnSound(*row) for row in await connection.execute(query.order_by(own_sounds.c.name)))


def _id_of(project: str, name: str) -> Select[str]:
    return select(own_sounds.c.id).where(own_sounds.c.project_id == project, own_sounds.c.name == name)


async def _existing(connection: AsyncConnection, project: str, name: str) -> str:
    sound = await connection.scalar(_id_of(project, name))
    if sound is None:
        raise NotFound(NO_SOUND)
    return str(sound)


def _taught(rows: Sequence[RowMapping], graph: str | None) -> TaughtSound:
    """Build a sound from its mark rows; a sound without marks has one row."""
    about = rows[0]
    return TaughtSound(
        about["sound_name"],
        about["sound_created_at"],
        about["sound_reported"],
        about["sound_learnt_at"],
        _figures.decode(about["sound_figures"] or "{}"),
        about["sound_graph"] in (None, graph),
        [Mark(*(row[column.name] for column in _SHOWN)) for row in rows if row["id"] is not None],
    )
