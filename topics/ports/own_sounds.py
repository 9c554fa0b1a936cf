"""Sounds that a project teaches: passages that it has marked, and what was learnt from them."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from topics.hearing import OwnSound

#: Sounds of a project, those of them that are on at a time, and marks of each.
MOST_SOUNDS: Final = 32
MOST_ON: Final = 8
MOST_MARKS: Final = 400


class Mark(msgspec.Struct, frozen=True):
    """A passage in which the sound is, or is not though it may seem so."""

    id: str
    #: A job, or a session, and its id.
    job: bool
    source: str
    start_ms: int
    end_ms: int
    #: The sound is there.
    right: bool
    #: SHA-256 of the graph that made the embeddings, and these: int8[looks, dimension].
    graph: str
    looks: bytes = b""


class LearntFigures(msgspec.Struct, frozen=True):
    """How heads do that were learnt without the passage in question; false reports are those in other sounds."""

    passages: int
    #: Share of the passages that are found.
    found: float
    false_per_minute: float
    #: Sounds that this model cannot tell from it.
    left_out: Sequence[str] = ()


class TaughtSound(msgspec.Struct, frozen=True):
    """A sound of a project; its marks come without embeddings."""

    name: str
    created_at: int
    #: New sessions and jobs report it.
    on: bool
    #: When it was learnt (milliseconds since 1970), None before; and the figures of streams and of recordings.
    learnt_at: int | None
    figures: dict[str, LearntFigures]
    #: The second model in use is the one that it was learnt on.
    fits: bool
    marks: Sequence[Mark]


class OwnSoundStore(Protocol):
    """The sounds of projects. Every call may raise DirectoryDown; a sound that is not there raises NotFound."""

    async def sounds(self, project: str) -> Sequence[TaughtSound]: ...

    async def mark(self, project: str, name: str, mark: Mark) -> TaughtSound:
        """Keep a mark; the sound is made with the first one. It replaces one of the same passage.

        Raises:
            BadRequest: it cannot be such a name, or the model in use knows such a sound.
            Conflict: the project or the sound has its most.
        """

    async def unmark(self, project: str, name: str, mark: str) -> None:
        """Forget a mark; raise NotFound if there is none."""

    async def learn(self, project: str, name: str) -> TaughtSound:
        """Learn a sound from its marks; what is on stays what it was. BadRequest says what marks are missing."""

    async def switch(self, project: str, name: str, on: bool) -> TaughtSound:
        """Report the sound in new sessions and jobs, or report it no more.

        Raises:
            Conflict: it was not learnt yet, or the project has its most that are on.
        """

    async def remove(self, project: str, name: str) -> None: ...

    async def learnt(self, project: str, name: str) -> OwnSound:
        """Return what was learnt of a sound; raise Conflict if nothing was."""

    def scores(self, sound: OwnSound, looks: bytes, recording: bool) -> bytes:
        """Return the packed score (`topics.scores`) of each embedding that is kept with windows."""
        ...
