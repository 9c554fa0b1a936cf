"""Sounds that a project teaches by marking passages."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from topics.hearing import OwnSound

#: Limits on a project's sounds, on those switched on, and on the marks of a sound.
MOST_SOUNDS: Final = 32
MOST_ON: Final = 8
MOST_MARKS: Final = 400


class Mark(msgspec.Struct, frozen=True):
    """A passage that contains the sound, or only seems to."""

    id: str
    #: Whether the source is a job or a session; below, its id.
    job: bool
    source: str
    start_ms: int
    end_ms: int
    #: Whether the sound is there.
    right: bool
    #: SHA-256 of the graph that computed the embeddings; below, these: int8[contexts, dimension].
    graph: str
    embeddings: bytes = b""


class LearntFigures(msgspec.Struct, frozen=True):
    """Cross-validated figures of a sound; false reports are those in other sounds."""

    passages: int
    #: Share of the passages found.
    found: float
    false_per_minute: float
    #: Sounds that the model cannot distinguish from it.
    left_out: Sequence[str] = ()


class TaughtSound(msgspec.Struct, frozen=True):
    """A sound of a project, with marks but without their embeddings."""

    name: str
    created_at: int
    #: Whether new sessions and jobs report it.
    on: bool
    #: Unix time (ms) of the learning, None before; below, the figures of streams and of recordings.
    learnt_at: int | None
    figures: dict[str, LearntFigures]
    #: Whether it was learnt on the second model in use.
    fits: bool
    marks: Sequence[Mark]


class OwnSoundStore(Protocol):
    """Stores the sounds of projects. Every call may raise DirectoryDown; an unknown sound raises NotFound."""

    async def sounds(self, project: str) -> Sequence[TaughtSound]: ...

    async def mark(self, project: str, name: str, mark: Mark) -> TaughtSound:
        """Store a mark, replacing one of the same passage; the first mark creates the sound.

        Raises:
            BadRequest: the name is not allowed, or the model in use has such a sound.
            Conflict: the project's sounds or the sound's marks are at their limit.
        """

    async def unmark(self, project: str, name: str, mark: str) -> None:
        """Delete a mark; raise NotFound if there is none."""

    async def learn(self, project: str, name: str) -> TaughtSound:
        """Learn a sound from its marks, without changing sounds that are on; raise BadRequest if marks are missing."""

    async def switch(self, project: str, name: str, on: bool) -> TaughtSound:
        """Switch the reports of a sound in new sessions and jobs on or off.

        Raises:
            Conflict: the sound is not learnt yet, or the project's limit of sounds that are on is reached.
        """

    async def remove(self, project: str, name: str) -> None: ...

    async def learnt(self, project: str, name: str) -> OwnSound:
        """Return a learnt sound; raise Conflict if it is not learnt yet."""

    def scores(self, sound: OwnSound, embeddings: bytes, recording: bool) -> bytes:
        """Return the packed scores (`topics.scores`) of the embeddings kept with windows."""
