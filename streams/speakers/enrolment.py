"""Enrols speakers: turns a client's recording into the sample with which voices are compared."""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from streams.clients.embeddings import VoiceEmbedding
from streams.models.protocol import Floats
from streams.quota import MOST_WAITING, SharedQuota
from streams.speakers.embedder import VoiceEmbedder
from streams.speakers.recording_reader import MIN_SAMPLED_S, MIN_SPEECH_S, SHORT_S, RecordingReader, reopen
from streams.speakers.speaker_store import EnrolledSpeaker, SpeakerStore, VoiceFiles, VoiceSample
from streams.voice.speech_segments import RATE
from topics.errors import AudioError, DirectoryDown, NotFound, RuleBroken, Unavailable
from topics.keys import new_id
from topics.media import Media
from topics.ports.speakers import ReEnrollment, speaker_not_found

#: Maximum number of short plain recordings enrolled at the same time.
MAX_SHORT_RECORDINGS: Final = 8


class EmbeddedRecording(msgspec.Struct, frozen=True):
    """A recording of one voice with its vector."""

    voice: VoiceEmbedding
    length_ms: int
    format: str


class Enrolment:
    """Embeds voices and stores them. Loop only."""

    def __init__(
        self,
        store: SpeakerStore,
        reader: RecordingReader,
        embedder: VoiceEmbedder,
        files: VoiceFiles,
        quota: SharedQuota,
        *,
        keep: bool = True,
    ) -> None:
        """Keep recordings in `files` if `keep` is set; `room` limits long recordings."""
        self._store = store
        self._reader = reader
        self._embedder = embedder
        self._files = files
        self._keep_in = files if keep else None
        self._short_quota = SharedQuota(MAX_SHORT_RECORDINGS, MOST_WAITING)
        self._quota = quota

    async def register(self, organization: str, speaker: str, file: int) -> EnrolledSpeaker:
        recording = await self._embed(organization, file, partial(self._store.check_room, organization, speaker))
        sample = VoiceSample(new_id(), recording.voice.vector, recording.voice.model, recording.length_ms)
        if self._keep_in is None:
            return await self._store.add(organization, speaker, sample)
        path = f"{organization}/{sample.id}.{recording.format}"
        await self._store.reserve(path)
        with reopen(file) as source:
            source.seek(0)
            await self._keep_in.keep(path, source)
        try:
            return await self._store.add(organization, speaker, msgspec.structs.replace(sample, voice=path))
        except (RuleBroken, NotFound, Unavailable):
            # After any other error, the sample may be stored; if it is not, its reserved file is deleted later.
            with contextlib.suppress(DirectoryDown, Unavailable):
                await self._keep_in.discard([path])
                await self._store.discarded([path])
            raise

    async def register_passage(
        self, organization: str, speaker: str, file: int, declared: Media, spans: Sequence[tuple[int, int]]
    ) -> EnrolledSpeaker:
        async with self._quota.admit(organization):
            await self._store.check_room(organization, speaker)
            passage = await self._reader.passage(file, declared, spans)
        with tempfile.TemporaryFile() as voice:
            voice.write(passage)
            voice.flush()
            return await self.register(organization, speaker, voice.fileno())

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrollment:
        enrolled_speaker = await self._store.speaker(organization, speaker)
        if enrolled_speaker is None:
            raise speaker_not_found()
        model = await self._embedder.fetch_model()
        done = left = 0
        for sample in enrolled_speaker.samples:
            if sample.model == model:
                continue
            recording = None if sample.voice is None else await self._embed_kept(organization, sample.voice)
            if recording is None:
                left += 1
                continue
            voice = recording.voice
            replacement = msgspec.structs.replace(sample, vector=voice.vector, model=voice.model)
            # A sample removed meanwhile counts as neither.
            done += await self._store.replace(organization, speaker, replacement)
        return ReEnrollment(done, left)

    async def _embed(
        self, organization: str, file: int, check_room: Callable[[], Awaitable[None]]
    ) -> EmbeddedRecording:
        """Embed a recording; first call `check_room`, which raises if there is no room for a sample."""
        async with self._short_quota.admit(organization):
            short = await self._reader.short_wav(file)
            if short is not None:
                samples, data = short
                return await self._embed_speech(samples, "wav", check_room, data)
        async with self._quota.admit(organization):
            await check_room()
            probe = await self._reader.probe(file)
            return await self._embed_speech(await self._reader.samples(file, probe), probe.format, skip_check)

    async def _embed_speech(
        self, samples: Floats, kind: str, check_room: Callable[[], Awaitable[None]], data: bytes | None = None
    ) -> EmbeddedRecording:
        """Embed the speech in float32[n] at 16 kHz, including pauses if it is short and mostly speech.

        A short recording is sent whole (as the WAV file `data` if it came as one), so that the engine works during
        speech detection.
        """
        length_ms = len(samples) * 1000 // RATE
        short = MIN_SAMPLED_S * RATE <= len(samples) <= SHORT_S * RATE
        early = asyncio.create_task(self._embedder.embed(data or samples)) if short else None
        try:
            await check_room()
            if early is not None and await self._reader.run(self._reader.is_mostly_speech, samples):
                return EmbeddedRecording(await early, length_ms, kind)
        finally:
            if early is not None:
                early.cancel()
                await asyncio.gather(early, return_exceptions=True)
        speech = await self._reader.speech(samples)
        del samples  # the call below makes another copy
        if len(speech) < MIN_SPEECH_S * RATE:
            seconds = len(speech) / RATE
            raise RuleBroken(
                f"the audio holds too little speech: {seconds:.1f} s, at least {MIN_SPEECH_S:g} s is needed"
            )
        return EmbeddedRecording(await self._embedder.embed(speech), length_ms, kind)

    async def _embed_kept(self, organization: str, voice: str) -> EmbeddedRecording | None:
        """Embed the recording in a voice file; None if it is gone or unreadable."""
        with tempfile.TemporaryFile() as file:
            if not await self._files.fetch(voice, file):
                return None
            file.flush()
            try:
                return await self._embed(organization, file.fileno(), skip_check)
            except (AudioError, RuleBroken):
                return None


async def skip_check() -> None:
    """Replace `check_room` if it was already called or no room is needed."""
