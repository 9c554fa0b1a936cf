"""The storage of registered speakers: what enrolment and recognition need of the control plane's stores."""

from collections.abc import Sequence
from typing import BinaryIO, Protocol

import msgspec

from streams.clients.embeddings import EmbeddingModel
from streams.models.protocol import Floats


class VoiceSample(msgspec.Struct, frozen=True):
    """A recording of a speaker, as a vector."""

    #: Also part of its voice file's name.
    id: str
    #: Unit vector, float32[dimension].
    vector: Floats
    model: EmbeddingModel
    #: Length of the recording in milliseconds.
    length_ms: int
    #: Name of the recording in the voice store; None if it was not kept.
    voice: str | None = None


class EnrolledSpeaker(msgspec.Struct, frozen=True):
    """A registered speaker with samples of the voice."""

    name: str
    #: Milliseconds since 1970, UTC.
    created_at: int
    #: In order of registration; never empty.
    samples: tuple[VoiceSample, ...]
    #: What people call the speaker; None for the name.
    display_name: str | None = None

    def is_compatible(self, model: EmbeddingModel | None) -> bool:
        """Return whether `model` made all samples, so that voices can be compared with them."""
        return all(sample.model == model for sample in self.samples)


def outdated_warning(outdated: int, speakers: int) -> str:
    return (
        f"{outdated} of {speakers} registered speakers may not be recognised, because another model made their voice "
        "samples: run `earshot speakers re-enroll`, or register them again"
    )


class SpeakerStore(Protocol):
    """The registered speakers of organizations, given by id. Every call may raise DirectoryDown."""

    async def count(self, outdated_for: EmbeddingModel | None = None) -> int:
        """Count the speakers of all organizations; with a model, only those with samples of other models."""

    async def enrolled(self, organization: str) -> Sequence[EnrolledSpeaker]:
        """Return all speakers of an organization, by name."""

    async def speaker(self, organization: str, speaker: str) -> EnrolledSpeaker | None:
        """Return one speaker; None if the organization has no speaker of this name."""

    async def name(self, organization: str, speaker: str, display_name: str | None) -> bool:
        """Set what people call a speaker, None for the name; return False if there is no such speaker."""

    async def check_room(self, organization: str, speaker: str) -> None:
        """Check that `add` would accept a sample, before doing the work for it.

        Raises:
            RuleBroken: the organization has `MAX_SPEAKERS`, or the speaker `MAX_SAMPLES`.
        """

    async def reserve(self, voice: str) -> None:
        """Record that a voice file will be written; unless `add` takes it, it is deleted after an hour."""

    async def add(self, organization: str, speaker: str, sample: VoiceSample) -> EnrolledSpeaker:
        """Add a sample to a speaker, created with the first sample; both limits hold under concurrent calls.

        Raises:
            RuleBroken: the organization has `MAX_SPEAKERS`, or the speaker `MAX_SAMPLES`.
            NotFound: the organization was deleted.
            Unavailable: the reservation of the sample's voice file is gone, and perhaps the file too.
        """

    async def replace(self, organization: str, speaker: str, sample: VoiceSample) -> bool:
        """Replace the vector and model of the sample with this id; return False if it is gone."""

    async def remove(self, organization: str, speaker: str) -> Sequence[str] | None:
        """Delete a speaker with all samples; return their voice files, marked for deletion, or None without a speaker.

        Afterwards no vector is left in the database's files, if the database can guarantee that.
        """

    async def discarded(self, voices: Sequence[str]) -> None:
        """Remove the deletion marks of voice files that are deleted."""

    async def to_discard(self) -> Sequence[str]:
        """Return the voice files that are marked for deletion and due."""


class VoiceFiles(Protocol):
    """The voice store. Every call may raise Unavailable if the store does not answer."""

    async def keep(self, voice: str, file: BinaryIO) -> None:
        """Write the rest of `file`, from its current position, under a name; all of it or nothing."""

    async def fetch(self, voice: str, into: BinaryIO) -> bool:
        """Write a voice file to `into`; return False if it does not exist."""

    async def discard(self, voices: Sequence[str]) -> None:
        """Delete voice files; missing ones count as deleted."""
