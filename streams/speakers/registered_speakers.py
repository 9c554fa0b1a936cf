"""The registered speakers of organizations: composes the port `topics.ports.speakers.Speakers` from its parts."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from streams.audio.decode import OpenFile
from streams.clients.embeddings import EmbeddingClient, EmbeddingModel
from streams.models.protocol import Floats
from streams.quota import MOST_WAITING, SharedQuota
from streams.services import timed_text
from streams.speakers.embedder import VoiceEmbedder
from streams.speakers.enrolment import Enrolment
from streams.speakers.identification import SpeakerIdentification, long_enough
from streams.speakers.matching import names_of
from streams.speakers.recording_reader import RecordingReader, split_seconds
from streams.speakers.speaker_store import EnrolledSpeaker, SpeakerStore, VoiceFiles, outdated_warning
from streams.speakers.transcriber import Transcriber
from streams.voice import loudness
from streams.voice.activity import CachedDetector, SileroDetector, VoiceActivityDetector, bundled_detector
from streams.voice.diarization import diarize, lengthen_turns
from streams.voice.excerpts import excerpts
from streams.voice.speaker_engine import SpeakerEngine
from streams.voice.speech_segments import RATE
from topics import media
from topics.errors import DirectoryDown, EarshotError, Unavailable
from topics.ports.prober import Prober
from topics.ports.speakers import Profile, ReEnrollment, SpeakerTurn, speaker_not_found

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Long recordings in memory, 38 MB each: as many for enrolment as for recognition, which may have to wait for a speech
#: engine.
MAX_LONG_RECORDINGS: Final = 2


class SpeakerService:
    """Enrols speakers, finds them in recordings, and deletes them. Loop only."""

    def __init__(
        self,
        store: SpeakerStore,
        files: VoiceFiles,
        prober: Prober,
        open_file: OpenFile,
        engine: EmbeddingClient,
        speakers: SpeakerEngine,
        *,
        keep: bool = True,
        transcriber: Transcriber | None = None,
        model: EmbeddingModel | None = None,
        threshold: float | None = None,
        load_detector: Callable[[], SileroDetector] = bundled_detector,
    ) -> None:
        """Compare voices by the vectors of `engine`, and separate a recording's speakers with `speakers`, in process.

        `open_file` opens recordings. If `keep` is set, `files` keeps new ones; old ones are always found and deleted
        there. `model` is the engine's model if known; `threshold` overrides the engine's. Without a `transcriber`,
        transcripts are empty.
        """
        self._store = store
        self._files = files
        self._embedder = VoiceEmbedder(engine, model, threshold)
        self._reader = RecordingReader(prober, open_file, load_detector)
        #: Also names the speakers of jobs.
        self.identification = SpeakerIdentification(store, self._embedder)
        self._enrolment = Enrolment(
            store, self._reader, self._embedder, files, SharedQuota(MAX_LONG_RECORDINGS, MOST_WAITING), keep=keep
        )
        self._speakers = speakers
        self._transcriber = transcriber
        self._recognitions = SharedQuota(MAX_LONG_RECORDINGS, MOST_WAITING)

    async def close(self) -> None:
        """Shut down the threads and close the connections of the speaker engine, once no call is left."""
        await self._reader.close()
        await self._embedder.close()

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrollment:
        return await self._enrolment.re_enroll(organization, speaker)

    async def profiles(self, organization: str) -> Sequence[Profile]:
        speakers = await self._store.enrolled(organization)
        if not speakers:
            return []
        # If the engine does not answer, assume the last model used.
        model = await self._embedder.model() or max(speakers, key=lambda each: each.created_at).samples[-1].model
        return [_profile(speaker, model) for speaker in speakers]

    async def register(self, organization: str, speaker: str, file: int) -> Profile:
        enrolled = await self._enrolment.register(organization, speaker, file)
        return _profile(enrolled, await self._embedder.model())

    async def register_passage(
        self, organization: str, speaker: str, file: int, content_type: str, spans: Sequence[tuple[int, int]]
    ) -> Profile:
        declared = media.parse(content_type)
        enrolled = await self._enrolment.register_passage(organization, speaker, file, declared, spans)
        return _profile(enrolled, await self._embedder.model())

    async def name(self, organization: str, speaker: str, display_name: str | None) -> Profile:
        named = await self._store.name(organization, speaker, display_name)
        enrolled = await self._store.speaker(organization, speaker) if named else None
        if enrolled is None:
            raise speaker_not_found()
        return _profile(enrolled, await self._embedder.model())

    async def remove(self, organization: str, speaker: str) -> None:
        voices = await self._store.remove(organization, speaker)
        if voices is None:
            raise speaker_not_found()
        try:
            if voices:
                await self._files.discard(voices)
                await self._store.discarded(voices)
        except (Unavailable, DirectoryDown) as error:
            log.warning("speakers.discard", error=str(error))
            raise Unavailable(
                "the speaker is gone; a voice file will be deleted as soon as its store answers"
            ) from error

    async def recognize(self, organization: str, file: int) -> Sequence[SpeakerTurn]:
        """Separate speakers in process and identify them by the vectors of their longest turns."""
        async with self._recognitions.admit(organization):
            probe, speakers = await asyncio.gather(self._reader.probe(file), self._store.enrolled(organization))
            samples = await self._reader.run(loudness.levelled, await self._reader.samples(file, probe))
            detector = await self._reader.run(lambda: CachedDetector(self._reader.detector))
            transcription = asyncio.create_task(self._texts(samples, detector))
            try:
                turns = await self._reader.run(diarize, split_seconds(samples), self._speakers, detector)
                voices = excerpts(turns, lambda first, end: samples[first:end])
                matches = await self.identification.matches(speakers, voices)
                turns = lengthen_turns(turns, len(samples) / RATE, timed_text.PAUSE_MS / 1000)
                texts = timed_text.turn_texts(await transcription if turns else [], turns)
            finally:
                transcription.cancel()
                await asyncio.gather(transcription, return_exceptions=True)
        names = names_of(matches)
        return [
            SpeakerTurn(
                start_ms=round(turn.start_s * 1000),
                end_ms=round(turn.end_s * 1000),
                transcript=text,
                speaker=turn.speaker,
                name=names[turn.speaker],
                score=matches[turn.speaker].score,
                known=matches[turn.speaker].name is not None,
                unlabeled=not long_enough(voices[turn.speaker]),
            )
            for turn, text in zip(turns, texts, strict=True)
        ]

    async def _texts(self, samples: Floats, detector: VoiceActivityDetector) -> Sequence[timed_text.TimedText]:
        return [] if self._transcriber is None else await self._transcriber.texts(self._reader, samples, detector)

    async def outdated(self) -> str | None:
        """Return a warning about speakers with samples of another model; None if none, or on any error."""
        with suppress(EarshotError):
            speakers = await self._store.count()
            model = await self._embedder.model() if speakers else None
            if model is not None and (outdated := await self._store.count(model)):
                return outdated_warning(outdated, speakers)
        return None

    async def warn_of_outdated(self) -> None:
        if (fault := await self.outdated()) is not None:
            log.warning("speakers.outdated", fault=fault)

    async def sweep(self) -> None:
        """Delete unreferenced voice files; log failures and leave them to the next sweep."""
        try:
            due = await self._store.to_discard()
            # One by one: a file that can never be deleted must not keep the others.
            faults = await asyncio.gather(*(self._files.discard([voice]) for voice in due), return_exceptions=True)
            if deleted_voices := [voice for voice, fault in zip(due, faults, strict=True) if fault is None]:
                await self._store.discarded(deleted_voices)
            for fault in {str(fault) for fault in faults if fault is not None}:
                log.warning("speakers.sweep", error=fault)
        except Exception:  # a background task that ends would leave recordings of people who asked for their deletion
            log.warning("speakers.sweep", exc_info=True)


def _profile(speaker: EnrolledSpeaker, model: EmbeddingModel | None) -> Profile:
    return Profile(
        name=speaker.name,
        created_at=speaker.created_at,
        length_ms=sum(sample.length_ms for sample in speaker.samples),
        samples=len(speaker.samples),
        compatible=speaker.is_compatible(model),
        display_name=speaker.display_name,
    )
