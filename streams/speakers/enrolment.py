"""Learning voices: from the recording that somebody sends to the sample that is compared with others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from typing import Final

import msgspec

from streams.audio import wav
from streams.audio.resample import resampled
from streams.engines.protocol import Floats
from streams.jobs.engines.speaker import Embedded
from streams.speakers.gate import Gate
from streams.speakers.listener import LEAST_S, Listener, own
from streams.speakers.prints import Voiceprints
from streams.speakers.roster import Enrolled, Roster, Sample, VoiceFiles, nobody
from streams.voice.activity import RATE
from topics.errors import AudioError, DirectoryDown, NotFound, RuleBroken, Unavailable
from topics.keys import new_id
from topics.ports import ReEnrolled

#: Recordings of at most so much may be learnt whole, so many at a time.
WHOLE_BYTES: Final = 4 * 1024 * 1024
WHOLE_S: Final = 30
WHOLE: Final = 8


class Learned(msgspec.Struct, frozen=True):
    """A voice, and the recording that it was learnt from."""

    voice: Embedded
    length_ms: int
    #: Container.
    format: str


class Enrolment:
    """Learns voices and keeps them."""

    def __init__(
        self,
        roster: Roster,
        listener: Listener,
        prints: Voiceprints,
        files: VoiceFiles,
        gate: Gate,
        *,
        keep: bool = True,
    ) -> None:
        """Keep recordings in `files` if `keep` is set; `gate` bounds those that are long."""
        self._roster = roster
        self._listener = listener
        self._prints = prints
        self._files = files
        self._kept = files if keep else None
        self._few = Gate(WHOLE)
        self._gate = gate

    async def register(self, organization: str, speaker: str, file: int) -> Enrolled:
        """See `topics.ports.Speakers.register`."""
        learned = await self._learned_whole(organization, speaker, file)
        if learned is None:
            await self._roster.check_room(organization, speaker)
            learned = await self._learned(file)
        sample = Sample(new_id(), learned.voice.vector, learned.voice.model, learned.length_ms)
        if self._kept is None:
            return await self._roster.add(organization, speaker, sample)
        path = f"{organization}/{sample.id}.{learned.format}"
        await self._roster.reserve(path)
        with own(file) as source:
            source.seek(0)
            await self._kept.keep(path, source)
        try:
            return await self._roster.add(organization, speaker, msgspec.structs.replace(sample, voice=path))
        except (RuleBroken, NotFound, Unavailable):
            # Whatever else goes wrong, the sample may be there, and what is reserved is deleted if it is not.
            with contextlib.suppress(DirectoryDown, Unavailable):
                await self._kept.discard([path])
                await self._roster.discarded([path])
            raise

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrolled:
        """See `topics.ports.Speakers.re_enroll`."""
        enrolled = await self._roster.speaker(organization, speaker)
        if enrolled is None:
            raise nobody()
        model = await self._prints.ask()
        done = left = 0
        for sample in enrolled.samples:
            if sample.model == model:
                continue
            learned = None if sample.voice is None else await self._learned_again(sample.voice)
            if learned is None:
                left += 1
                continue
            found = learned.voice
            fresh = msgspec.structs.replace(sample, vector=found.vector, model=found.model)
            # One that is gone is neither.
            done += await self._roster.replace(organization, speaker, fresh)
        return ReEnrolled(done, left)

    async def _learned_whole(self, organization: str, speaker: str, file: int) -> Learned | None:
        """Learn a short recording that is mostly speech; None of any other, and of what is no plain WAV file.

        It is sent as it came, pauses included, so that the engine works while it is looked for speech here.
        """
        async with self._few.place():
            data = _small(file)
            if not wav.looks_plain(data):
                return None
            early = asyncio.create_task(self._prints.embed(data))
            try:
                await self._roster.check_room(organization, speaker)
                length = await self._listener.run(self._heard, data)
                return None if length is None else Learned(await early, length * 1000 // RATE, "wav")
            finally:
                early.cancel()
                await asyncio.gather(early, return_exceptions=True)

    def _heard(self, data: bytes) -> int | None:
        """Return the samples at 16 kHz of a short plain WAV file that is mostly speech, None of any other."""
        samples = _plain(data)
        return len(samples) if samples is not None and self._listener.mostly_speech(samples) else None

    async def _learned(self, file: int) -> Learned:
        """Learn a recording from the speech in it, pauses included where it is short and mostly speech."""
        async with self._gate.place():
            found = await self._listener.look(file)
            samples = await self._listener.samples(file, found)
            length_ms = len(samples) * 1000 // RATE
            whole = length_ms <= WHOLE_S * 1000 and await self._listener.run(self._listener.mostly_speech, samples)
            speech = samples if whole else await self._listener.speech(samples)
            del samples  # another copy comes with the call
            if len(speech) < LEAST_S * RATE:
                seconds = len(speech) / RATE
                raise RuleBroken(
                    f"the audio holds too little speech: {seconds:.1f} s, at least {LEAST_S:g} s is needed"
                )
            return Learned(await self._prints.embed(speech), length_ms, found.format)

    async def _learned_again(self, voice: str) -> Learned | None:
        """Learn the recording in a voice file; None where it cannot be had any more."""
        with tempfile.TemporaryFile() as file:
            if not await self._files.fetch(voice, file):
                return None
            file.flush()
            try:
                return await self._learned(file.fileno())
            except (AudioError, RuleBroken):
                return None


def _small(file: int) -> bytes:
    """Return all of a file, b"" of one that is too large to be learnt whole.

    Raises:
        Unavailable: the disk does not give it.
    """
    try:
        return os.pread(file, WHOLE_BYTES, 0) if os.fstat(file).st_size <= WHOLE_BYTES else b""
    except OSError as error:
        raise Unavailable(f"the recording cannot be read: {error.strerror}") from error


def _plain(data: bytes) -> Floats | None:
    """Return the samples of a short plain WAV file at 16 kHz."""
    audio = wav.plain(data)
    if audio is None or len(audio.samples) > WHOLE_S * audio.rate:
        return None
    return resampled(audio.samples, audio.rate, RATE)
