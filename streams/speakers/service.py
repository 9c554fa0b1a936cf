"""Registered speakers of organizations: `topics.ports.speakers.Speakers`, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from streams.clients.embeddings import EmbeddingClient
from streams.speakers.enrolment import Enrolment
from streams.speakers.gate import Gate
from streams.speakers.listener import Listener
from streams.speakers.naming import Naming
from streams.speakers.prints import Voiceprints
from streams.speakers.recognition import Recognition
from streams.speakers.roster import EmbeddingModel, Enrolled, Roster, VoiceFiles, nobody
from streams.speakers.transcripts import Writer
from streams.voice.activity import SileroDetector, bundled_detector
from streams.voice.speaker_engine import SpeakerEngine
from topics.errors import DirectoryDown, Unavailable
from topics.ports.prober import Prober
from topics.ports.speakers import Profile, ReEnrollment, SpeakerTurn

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Long recordings that are in memory at a time, 38 MB each: so many that are learnt, and so many that are recognised,
#: for whose words a speech engine may be waited for.
LONG: Final = 2


class SpeakerService:
    """Enrols speakers, finds them in recordings, and forgets them."""

    def __init__(
        self,
        roster: Roster,
        files: VoiceFiles,
        prober: Prober,
        engine: EmbeddingClient,
        speakers: SpeakerEngine,
        *,
        keep: bool = True,
        writer: Writer | None = None,
        model: EmbeddingModel | None = None,
        threshold: float | None = None,
        activity: Callable[[], SileroDetector] = bundled_detector,
    ) -> None:
        """Compare voices by the vectors of `engine`, and tell those of a recording apart with `speakers`, in process.

        Recordings are kept in `files` while `keep` is set, and found and deleted there in any case. `model` is that of
        the engine where it is known; `threshold` replaces what the engine tells of it.
        """
        self._roster = roster
        self._files = files
        self._prints = Voiceprints(engine, model, threshold)
        self._listener = Listener(prober, activity)
        #: Who the speakers of jobs are.
        self.naming = Naming(roster, self._prints)
        self._enrolment = Enrolment(roster, self._listener, self._prints, files, Gate(LONG), keep=keep)
        self._recognition = Recognition(roster, self._listener, self.naming, speakers, writer, Gate(LONG))

    async def close(self) -> None:
        """End the threads and close the connections of the speaker engine, once nobody calls any more."""
        await self._listener.close()
        await self._prints.close()

    async def profiles(self, organization: str) -> Sequence[Profile]:
        """See `topics.ports.speakers.Speakers`."""
        enrolled = await self._roster.enrolled(organization)
        if not enrolled:
            return []
        # Where nobody knows better, the model that was used last is in use.
        model = await self._prints.model() or max(enrolled, key=lambda each: each.created_at).samples[-1].model
        return [_profile(speaker, model) for speaker in enrolled]

    async def register(self, organization: str, speaker: str, file: int) -> Profile:
        """See `topics.ports.speakers.Speakers`."""
        enrolled = await self._enrolment.register(organization, speaker, file)
        return _profile(enrolled, await self._prints.model())

    async def remove(self, organization: str, speaker: str) -> None:
        """See `topics.ports.speakers.Speakers`."""
        voices = await self._roster.remove(organization, speaker)
        if voices is None:
            raise nobody()
        try:
            if voices:
                await self._files.discard(voices)
                await self._roster.discarded(voices)
        except (Unavailable, DirectoryDown) as error:
            log.warning("speakers.discard", error=str(error))
            raise Unavailable(
                "the speaker is gone; a voice file will be deleted as soon as its store answers"
            ) from error

    async def recognize(self, organization: str, file: int) -> Sequence[SpeakerTurn]:
        """See `topics.ports.speakers.Speakers`."""
        return await self._recognition.recognize(organization, file)

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrollment:
        """See `topics.ports.speakers.Speakers`."""
        return await self._enrolment.re_enroll(organization, speaker)

    async def sweep(self) -> None:
        """Delete the voice files that nothing refers to any more; what fails is logged, and done by the next sweep."""
        try:
            due = await self._roster.to_discard()
            # Each by itself: one that cannot be deleted, ever, stands in the way of no other.
            faults = await asyncio.gather(*(self._files.discard([voice]) for voice in due), return_exceptions=True)
            if gone := [voice for voice, fault in zip(due, faults, strict=True) if fault is None]:
                await self._roster.discarded(gone)
            for fault in {str(fault) for fault in faults if fault is not None}:
                log.warning("speakers.sweep", error=fault)
        except Exception:  # a background task that ends would leave recordings of people who asked for their deletion
            log.warning("speakers.sweep", exc_info=True)


def _profile(speaker: Enrolled, model: EmbeddingModel | None) -> Profile:
    return Profile(
        name=speaker.name,
        created_at=speaker.created_at,
        length_ms=sum(sample.length_ms for sample in speaker.samples),
        samples=len(speaker.samples),
        compatible=all(sample.model == model for sample in speaker.samples),
    )
