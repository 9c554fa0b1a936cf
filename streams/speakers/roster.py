"""Where registered speakers are kept: what enrolment and recognition ask of the control plane's stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Final, Protocol

import msgspec

from streams.models.protocol import Floats
from topics.errors import RuleBroken

MOST_SPEAKERS: Final = 50
MOST_SAMPLES: Final = 20


class EmbeddingModel(msgspec.Struct, frozen=True):
    """Which model made a vector; vectors of two that differ in anything cannot be compared."""

    name: str
    #: SHA-256 of its weights in hex; of its name and dimension where an engine does not tell.
    sha256: str


class Sample(msgspec.Struct, frozen=True):
    """A voice sample."""

    #: Also a part of the name of its voice file.
    id: str
    #: Unit vector, float32[dimension].
    vector: Floats
    model: EmbeddingModel
    #: Length of the recording in milliseconds.
    length_ms: int
    #: Where the recording is in the voice store, None when it was not kept.
    voice: str | None = None


class Enrolled(msgspec.Struct, frozen=True):
    """A registered speaker."""

    name: str
    #: Milliseconds since 1970, UTC.
    created_at: int
    #: In the order in which they were added; never empty.
    samples: tuple[Sample, ...]


class Roster(Protocol):
    """The registered speakers of organizations (ids). Every call may raise DirectoryDown."""

    async def enrolled(self, organization: str) -> Sequence[Enrolled]:
        """Return all speakers of an organization by name."""
        ...

    async def speaker(self, organization: str, speaker: str) -> Enrolled | None:
        """Return one speaker, None when there is none of this name in the organization."""
        ...

    async def check_room(self, organization: str, speaker: str) -> None:
        """Raise what `add` would, so that no work is done for a sample that cannot be added.

        Raises:
            RuleBroken: see `full` and `crowded`.
        """
        ...

    async def reserve(self, voice: str) -> None:
        """Note that a voice file is about to be written: unless `add` takes it, it is deleted after an hour."""
        ...

    async def add(self, organization: str, speaker: str, sample: Sample) -> Enrolled:
        """Add a sample to a speaker, who is made with the first one, within both caps whoever else adds.

        Raises:
            RuleBroken: see `full` and `crowded`.
            NotFound: the organization was deleted.
            Unavailable: the note of the sample's voice file is gone, and so may be the file.
        """
        ...

    async def replace(self, organization: str, speaker: str, sample: Sample) -> bool:
        """Give the sample of this id another vector and model; False when it is gone."""
        ...

    async def remove(self, organization: str, speaker: str) -> Sequence[str] | None:
        """Delete a speaker and their samples; return the voice files, which are noted to be deleted, None for nobody.

        Nothing of the vectors is left in the database's files when this returns, where the database can do that.
        """
        ...

    async def discarded(self, voices: Sequence[str]) -> None:
        """Forget the notes of voice files that are deleted."""
        ...

    async def to_discard(self) -> Sequence[str]:
        """Return voice files that are noted to be deleted and are due."""
        ...


class VoiceFiles(Protocol):
    """The voice store. Every call may raise Unavailable: the store does not answer."""

    async def keep(self, voice: str, file: BinaryIO) -> None:
        """Write what `file` holds, from where it stands to its end, under a name; all of it, or nothing."""
        ...

    async def fetch(self, voice: str, into: BinaryIO) -> bool:
        """Write a voice file to `into`; False when it is not there."""
        ...

    async def discard(self, voices: Sequence[str]) -> None:
        """Delete voice files; those that are not there count as deleted."""
        ...


def full() -> RuleBroken:
    """Return the error of an organization that has its most speakers; the words are the contract's."""
    return RuleBroken(f"speaker_max_count({MOST_SPEAKERS}) exceeded")


def crowded() -> RuleBroken:
    """Return the error of a speaker who has their most samples."""
    return RuleBroken(f"voice_max_count({MOST_SAMPLES}) exceeded")


def nobody() -> RuleBroken:
    """Return the error of a speaker who is not there."""
    return RuleBroken("speaker not found")
