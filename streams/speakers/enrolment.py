"""Learning voices: from the recording that somebody sends to the sample that is compared with others."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from streams.clients.embeddings import VoiceEmbedding
from streams.models.protocol import Floats
from streams.speakers.gate import Gate
from streams.speakers.listener import LEAST_S, SAMPLED_S, SHORT_S, Listener, own
from streams.speakers.prints import Voiceprints
from streams.speakers.roster import Enrolled, Roster, Sample, VoiceFiles, nobody
from streams.voice.activity import RATE
from topics.errors import AudioError, DirectoryDown, NotFound, RuleBroken, Unavailable
from topics.keys import new_id
from topics.ports.speakers import ReEnrollment

#: Short plain recordings that are learnt at a time.
SHORT: Final = 8


class Learned(msgspec.Struct, frozen=True):
    """A voice, and the recording that it was learnt from."""

    voice: VoiceEmbedding
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
        self._few = Gate(SHORT)
        self._gate = gate

    async def register(self, organization: str, speaker: str, file: int) -> Enrolled:
        """See `topics.ports.speakers.Speakers.register`."""
        learned = await self._learned(file, partial(self._roster.check_room, organization, speaker))
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

    async def re_enroll(self, organization: str, speaker: str) -> ReEnrollment:
        """See `topics.ports.speakers.Speakers.re_enroll`."""
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
        return ReEnrollment(done, left)

    async def _learned(self, file: int, check_room: Callable[[], Awaitable[None]]) -> Learned:
        """Learn a recording; `check_room` raises where there is no room for another, and is called before long work."""
        async with self._few.place():
            plain = await self._listener.plain(file)
            if plain is not None:
                samples, data = plain
                return await self._voice(samples, "wav", check_room, data)
        async with self._gate.place():
            await check_room()
            found = await self._listener.look(file)
            return await self._voice(await self._listener.samples(file, found), found.format, anybody)

    async def _voice(
        self, samples: Floats, kind: str, check_room: Callable[[], Awaitable[None]], data: bytes | None = None
    ) -> Learned:
        """Learn from the speech in float32[n] at 16 kHz, pauses included where it is short and mostly speech.

        What is short is sent whole, as the WAV file `data` if it came as one, so that the engine works while it is
        looked for speech here.
        """
        length_ms = len(samples) * 1000 // RATE
        short = SAMPLED_S * RATE <= len(samples) <= SHORT_S * RATE
        early = asyncio.create_task(self._prints.embed(data or samples)) if short else None
        try:
            await check_room()
            if early is not None and await self._listener.run(self._listener.mostly_speech, samples):
                return Learned(await early, length_ms, kind)
        finally:
            if early is not None:
                early.cancel()
                await asyncio.gather(early, return_exceptions=True)
        speech = await self._listener.speech(samples)
        del samples  # another copy comes with the call
        if len(speech) < LEAST_S * RATE:
            seconds = len(speech) / RATE
            raise RuleBroken(f"the audio holds too little speech: {seconds:.1f} s, at least {LEAST_S:g} s is needed")
        return Learned(await self._prints.embed(speech), length_ms, kind)

    async def _learned_again(self, voice: str) -> Learned | None:
        """Learn the recording in a voice file; None where it cannot be had any more."""
        with tempfile.TemporaryFile() as file:
            if not await self._files.fetch(voice, file):
                return None
            file.flush()
            try:
                return await self._learned(file.fileno(), anybody)
            except (AudioError, RuleBroken):
                return None


async def anybody() -> None:
    """Stand for `check_room` where there is room, or need be none."""
