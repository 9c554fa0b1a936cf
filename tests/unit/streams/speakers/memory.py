"""In-memory stores of registered speakers."""

from collections.abc import Sequence
from typing import BinaryIO

import msgspec

from streams.clients.embeddings import EmbeddingModel
from streams.speakers.speaker_store import EnrolledSpeaker, VoiceSample
from topics.errors import DirectoryDown, Unavailable
from topics.ports.speakers import MAX_SAMPLES, MAX_SPEAKERS, too_many_samples, too_many_speakers


class MemorySpeakerStore:
    def __init__(self) -> None:
        self.of: dict[str, dict[str, EnrolledSpeaker]] = {}
        #: Voice files to delete; reserved ones are not due.
        self.noted: list[str] = []
        self.reserved: list[str] = []
        self.down = False
        self._made = 0

    def _speakers(self, organization: str) -> dict[str, EnrolledSpeaker]:
        if self.down:
            raise DirectoryDown("the database does not answer")
        return self.of.setdefault(organization, {})

    async def count(self, outdated_for: EmbeddingModel | None = None) -> int:
        if self.down:
            raise DirectoryDown("the database does not answer")
        speakers = [speaker for there in self.of.values() for speaker in there.values()]
        return sum(outdated_for is None or not speaker.is_compatible(outdated_for) for speaker in speakers)

    async def enrolled(self, organization: str) -> Sequence[EnrolledSpeaker]:
        return [speaker for _, speaker in sorted(self._speakers(organization).items())]

    async def speaker(self, organization: str, speaker: str) -> EnrolledSpeaker | None:
        return self._speakers(organization).get(speaker)

    async def check_room(self, organization: str, speaker: str) -> None:
        there = self._speakers(organization)
        if speaker not in there and len(there) == MAX_SPEAKERS:
            raise too_many_speakers()
        if speaker in there and len(there[speaker].samples) == MAX_SAMPLES:
            raise too_many_samples()

    async def reserve(self, voice: str) -> None:
        self.reserved.append(voice)

    async def add(self, organization: str, speaker: str, sample: VoiceSample) -> EnrolledSpeaker:
        await self.check_room(organization, speaker)
        there = self._speakers(organization)
        self._made += 1
        known = there.get(speaker, EnrolledSpeaker(speaker, self._made, ()))
        there[speaker] = msgspec.structs.replace(known, samples=(*known.samples, sample))
        if sample.voice is not None:
            self.reserved.remove(sample.voice)
        return there[speaker]

    async def name(self, organization: str, speaker: str, display_name: str | None) -> bool:
        there = self._speakers(organization)
        if speaker in there:
            there[speaker] = msgspec.structs.replace(there[speaker], display_name=display_name)
        return speaker in there

    async def replace(self, organization: str, speaker: str, sample: VoiceSample) -> bool:
        known = self._speakers(organization).get(speaker)
        if known is None or all(sample.id != each.id for each in known.samples):
            return False
        samples = tuple(sample if sample.id == each.id else each for each in known.samples)
        self.of[organization][speaker] = msgspec.structs.replace(known, samples=samples)
        return True

    async def remove(self, organization: str, speaker: str) -> Sequence[str] | None:
        known = self._speakers(organization).pop(speaker, None)
        if known is None:
            return None
        voices = [sample.voice for sample in known.samples if sample.voice is not None]
        self.noted += voices
        return voices

    async def discarded(self, voices: Sequence[str]) -> None:
        for voice in voices:
            for notes in (self.noted, self.reserved):
                if voice in notes:
                    notes.remove(voice)

    async def to_discard(self) -> Sequence[str]:
        if self.down:
            raise DirectoryDown("the database does not answer")
        return list(self.noted)


class MemoryFiles:
    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.down = False
        #: Files that the store refuses to delete.
        self.stuck: set[str] = set()

    async def keep(self, voice: str, file: BinaryIO) -> None:
        self._check()
        self.held[voice] = file.read()

    async def fetch(self, voice: str, into: BinaryIO) -> bool:
        self._check()
        if voice not in self.held:
            return False
        into.write(self.held[voice])
        return True

    async def discard(self, voices: Sequence[str]) -> None:
        self._check()
        for voice in voices:
            if voice in self.stuck:
                raise Unavailable("the voice store does not answer: Permission denied")
            self.held.pop(voice, None)

    def _check(self) -> None:
        if self.down:
            raise Unavailable("the voice store does not answer")
