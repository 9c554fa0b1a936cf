"""Registered speakers as they are stored: what enrolment and recognition ask of the control plane's stores."""

from collections.abc import Sequence
from typing import BinaryIO, Protocol

import msgspec

from streams.clients.embeddings import EmbeddingModel
from streams.models.protocol import Floats


class VoiceSample(msgspec.Struct, frozen=True):
    """A recording of a speaker, as a vector."""

    #: Also a part of the name of its voice file.
    id: str
    #: Unit vector, float32[dimension].
    vector: Floats
    model: EmbeddingModel
    #: Length of the recording in milliseconds.
    length_ms: int
    #: Name of the recording in the voice store; None if it was not kept.
    voice: str | None = None


class EnrolledSpeaker(msgspec.Struct, frozen=True):
    """A registered speaker."""

    name: str
    #: Milliseconds since 1970, UTC.
    created_at: int
    #: In the order of their registration; never empty.
    samples: tuple[VoiceSample, ...]

    def is_compatible(self, model: EmbeddingModel | None) -> bool:
        """Return whether `model` made all samples, so that voices can be compared with them."""
        return all(sample.model == model for sample in self.samples)


def outdated_warning(outdated: int, speakers: int) -> str:
    """Return the warning for operators or clients if some of the speakers have samples of other models."""
    return (
        f"{outdated} of {speakers} registered speakers may not be recognised, because another model made their voice "
        "samples: run `earshot speakers re-enroll`, or register them again"
    )


class SpeakerStore(Protocol):
    """The registered speakers of organizations, which are given by id. Every call may raise DirectoryDown."""

    async def count(self, outdated_for: EmbeddingModel | None = None) -> int:
        """Return how many speakers all organizations have; with a model only those with samples of other models."""

    async def enrolled(self, organization: str) -> Sequence[EnrolledSpeaker]:
        """Return all speakers of an organization, by name."""

    async def speaker(self, organization: str, speaker: str) -> EnrolledSpeaker | None:
        """Return one speaker, or None if the organization has no speaker of this name."""

    async def check_room(self, organization: str, speaker: str) -> None:
        """Check that `add` would take a sample, before work is done for it.

        Raises:
            RuleBroken: the organization has `MAX_SPEAKERS`, or the speaker `MAX_SAMPLES`.
        """

    async def reserve(self, voice: str) -> None:
        """Note that a voice file is about to be written: unless `add` takes it, it is deleted after an hour."""

    async def add(self, organization: str, speaker: str, sample: VoiceSample) -> EnrolledSpeaker:
        """Add a sample to a speaker, who is created with the first one; both limits hold under concurrent calls.

        Raises:
            RuleBroken: the organization has `MAX_SPEAKERS`, or the speaker `MAX_SAMPLES`.
            NotFound: the organization was deleted.
            Unavailable: the note of the sample's voice file is gone, and perhaps the file too.
        """

    async def replace(self, organization: str, speaker: str, sample: VoiceSample) -> bool:
        """Give the sample of this id another vector and model; return False if it is gone."""

    async def remove(self, organization: str, speaker: str) -> Sequence[str] | None:
        """Delete a speaker with all samples, and return their voice files, noted for deletion; None without a speaker.

        No vector is left in the database's files when this returns, where the database can guarantee that.
        """

    async def discarded(self, voices: Sequence[str]) -> None:
        """Forget the notes of voice files that are deleted."""

    async def to_discard(self) -> Sequence[str]:
        """Return the voice files that are noted for deletion and due."""


class VoiceFiles(Protocol):
    """The voice store. Every call may raise Unavailable: the store does not answer."""

    async def keep(self, voice: str, file: BinaryIO) -> None:
        """Write the rest of `file`, from its current position, under a name; all of it or nothing."""

    async def fetch(self, voice: str, into: BinaryIO) -> bool:
        """Write a voice file to `into`; False when it is not there."""

    async def discard(self, voices: Sequence[str]) -> None:
        """Delete voice files; missing ones count as deleted."""
