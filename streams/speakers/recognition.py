"""Who speaks when: speakers are told apart in process, and known by the engine's vectors of their longest turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from streams.models.protocol import Floats
from streams.services import words
from streams.speakers.gate import Gate
from streams.speakers.listener import Listener, blocks
from streams.speakers.matching import named
from streams.speakers.naming import Naming, telling
from streams.speakers.roster import Roster
from streams.speakers.transcripts import Writer
from streams.voice.activity import CachedDetector, SileroDetector
from streams.voice.diarization import diarize, join_turns
from streams.voice.excerpts import excerpts
from streams.voice.speaker_engine import SpeakerEngine
from topics.ports.speakers import SpeakerTurn


class Recognition:
    """Recognises registered speakers in recordings."""

    def __init__(
        self,
        roster: Roster,
        listener: Listener,
        naming: Naming,
        speakers: SpeakerEngine,
        writer: Writer | None,
        gate: Gate,
    ) -> None:
        """Tell speakers apart with `speakers`; what they say is known where there is a `writer`."""
        self._roster = roster
        self._listener = listener
        self._naming = naming
        self._speakers = speakers
        self._writer = writer
        self._gate = gate

    async def recognize(self, organization: str, file: int) -> list[SpeakerTurn]:
        """See `topics.ports.speakers.Speakers.recognize`."""
        async with self._gate.place():
            found, enrolled = await asyncio.gather(self._listener.look(file), self._roster.enrolled(organization))
            samples = await self._listener.samples(file, found)
            ear = await self._listener.run(lambda: CachedDetector(self._listener.activity))
            writing = asyncio.create_task(self._units(samples, ear))
            try:
                turns = await self._listener.run(diarize, blocks(samples), self._speakers, ear)
                voices = excerpts(turns, lambda first, end: samples[first:end])
                matches = await self._naming.matches(enrolled, voices)
                turns = join_turns(turns, words.PAUSE_MS / 1000)
                texts = words.texts(await writing if turns else [], turns)
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
        names = named(matches)
        return [
            SpeakerTurn(
                start_ms=round(turn.start_s * 1000),
                end_ms=round(turn.end_s * 1000),
                transcript=text,
                speaker=turn.speaker,
                name=names[turn.speaker],
                score=matches[turn.speaker].score,
                known=matches[turn.speaker].name is not None,
                unlabeled=not telling(voices[turn.speaker]),
            )
            for turn, text in zip(turns, texts, strict=True)
        ]

    async def _units(self, samples: Floats, ear: SileroDetector) -> Sequence[words.Unit]:
        return [] if self._writer is None else await self._writer.units(self._listener, samples, ear)
