"""One run of `speech_analysis`: from the samples of a recording to its transcript, piece by piece."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, ParamSpec, TypeVar

import msgspec

from streams.clients.transcriptions import Transcription, TranscriptionClient
from streams.services import words
from streams.services.performer import Work
from streams.services.pieces import Piece, activity, pieces
from streams.services.recording import Recording
from streams.services.voices import Voices, strangers
from streams.voice.activity import CachedDetector, SileroDetector
from streams.voice.diarization import SpeakerTurn, diarize
from streams.voice.excerpts import excerpts
from streams.voice.speaker_engine import SpeakerEngine
from topics.errors import EngineError, ServiceError
from topics.jobs.options import ANY_LANGUAGE
from topics.jobs.payloads import Segment, Transcript, encode

T = TypeVar("T")
P = ParamSpec("P")

PORTION_SEGMENTS: Final = 200
PORTION_CHARACTERS: Final = 50_000
LANGUAGE_CHARACTERS: Final = 40
#: Share of the work from which on it is told again that some is done.
STEP: Final = 0.05


class Kit(msgspec.Struct, frozen=True):
    """What all runs share."""

    engine: TranscriptionClient
    speakers: SpeakerEngine | None
    voices: Voices
    activity: Callable[[], SileroDetector]
    #: Length of a piece, at most.
    piece_s: float
    #: Threads that decode and find speech, and threads that tell speakers apart, which may take minutes.
    readers: Executor
    diarizers: Executor

    def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Call a function that works on the samples of a recording."""
        return asyncio.get_running_loop().run_in_executor(self.readers, lambda: function(*args, **kwargs))


class Transcribing:
    """The run."""

    def __init__(self, kit: Kit, work: Work, model: str | None, recording: Recording, stopped: threading.Event) -> None:
        self._kit = kit
        self._work = work
        self._model = model
        self._recording = recording
        self._stopped = stopped
        self._apart = work.accepted.options.diarizes and kit.speakers is not None
        self._warnings: list[str] = []
        #: Pieces that the engine has, or will have next, in order of time.
        self._asked: deque[tuple[Piece, asyncio.Task[Transcription]]] = deque()
        #: What was heard and waits for its speakers.
        self._heard: list[words.Unit] = []
        #: Length (ms) of the pieces in which the engine heard each language.
        self._languages: Counter[str] = Counter()
        self._ready: list[Segment] = []
        #: Name and score of each speaker; where they are not told apart there is one, whom nobody knows.
        self._names: Sequence[tuple[str, float]] = strangers(1)
        self._told = 0.0

    async def perform(self) -> tuple[str, ...]:
        """Emit the transcript, at least one portion of it, and return the warnings.

        Raises:
            ServiceFault: the engine failed.
            EngineError: voice activity failed.
        """
        options = self._work.accepted.options
        if options.diarizes and not self._apart:
            self._warnings.append("speakers are not told apart: there is no model for it")
        if options.speaker_profile and not self._apart:
            self._warnings.append("speakers are not named: they are not told apart")
        diarizing: asyncio.Future[list[SpeakerTurn]] | None = None
        try:
            ear = await self._kit.read(lambda: CachedDetector(self._kit.activity()))
            found = self._pieces(ear)
            number = 0
            while (piece := await self._kit.read(next, found, None)) is not None:
                if self._apart and diarizing is None:
                    diarizing = asyncio.get_running_loop().run_in_executor(self._kit.diarizers, self._diarize, ear)
                self._asked.append((piece, asyncio.create_task(self._ask(piece, number))))
                number += 1
                # Twice the places, so that none is empty while the oldest piece is waited for.
                await self._take(2 * self._kit.engine.address.limit)
            await self._take(0)
            speakers = [] if diarizing is None else await self._turns(diarizing)
            if speakers:
                self._names = await self._named(speakers)
            # Hours of words take a while.
            self._ready += await self._kit.read(lambda: list(words.turns(self._heard, speakers)))
            await self._emit(1.0, last=True)
        finally:
            if diarizing is not None:
                diarizing.cancel()
            left = [task for _, task in self._asked]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        return tuple(self._warnings)

    def _pieces(self, ear: SileroDetector) -> Iterator[Piece]:
        segments = ear.segments(self._recording.blocks(self._stopped), activity(self._kit.piece_s))
        return pieces(segments, self._kit.piece_s)

    def _diarize(self, ear: SileroDetector) -> list[SpeakerTurn]:
        assert self._kit.speakers is not None
        return diarize(self._recording.blocks(self._stopped), self._kit.speakers, ear)

    async def _turns(self, diarizing: asyncio.Future[list[SpeakerTurn]]) -> list[SpeakerTurn]:
        try:
            return await diarizing
        except EngineError as error:
            # The words are there, and worth more than who said them.
            self._warnings.append(f"speakers are not told apart: {error}")
            return []

    async def _named(self, turns: list[SpeakerTurn]) -> Sequence[tuple[str, float]]:
        """Look for registered speakers where that is asked for; who cannot be looked up is unknown."""
        accepted = self._work.accepted
        if accepted.options.speaker_profile:
            voices = await self._kit.read(excerpts, turns, self._recording.cut)
            try:
                return await self._kit.voices.names(accepted.organization, voices)
            except ServiceError as error:
                self._warnings.append(f"speakers are not named: {error}")
        return strangers(1 + max(turn.speaker for turn in turns))

    async def _ask(self, piece: Piece, number: int) -> Transcription:
        language = self._work.accepted.options.speech_lang
        async with self._kit.engine.places:
            wav = await asyncio.to_thread(self._recording.wav, piece.start_ms, piece.end_ms)
            return await self._kit.engine.transcribe(
                wav,
                f"{self._work.run}-{number}",
                model=self._model,
                language=None if language == ANY_LANGUAGE else language,
            )

    async def _take(self, most: int) -> None:
        """Take what the engine heard in the oldest pieces until at most `most` are left, and those that are done."""
        while self._asked and (len(self._asked) > most or self._asked[0][1].done()):
            piece, task = self._asked[0]
            answer = await task
            self._asked.popleft()
            if answer.language:
                self._languages[answer.language[:LANGUAGE_CHARACTERS]] += piece.end_ms - piece.start_ms
            found = words.units(answer, piece, by_word=self._apart)
            if self._apart:
                self._heard += found
            else:
                self._ready += words.turns(found, [])
            await self._emit(min(1.0, piece.end_ms / self._recording.length_ms))

    async def _emit(self, done: float, *, last: bool = False) -> None:
        """Emit what fills portions; and the rest where it is the last, or so much is done that readers are told."""
        while count := self._full():
            await self._portion(count, done)
        if last or done - self._told >= STEP:
            await self._portion(len(self._ready), done)

    def _full(self) -> int:
        """Return how many segments fill a portion, 0 where there are not enough of them."""
        characters = 0
        for count, segment in enumerate(self._ready, 1):
            characters += len(segment.text)
            if count == PORTION_SEGMENTS or characters >= PORTION_CHARACTERS:
                return count
        return 0

    async def _portion(self, count: int, done: float) -> None:
        segments, self._ready = self._ready[:count], self._ready[count:]
        named = tuple(
            msgspec.structs.replace(segment, name=name, score=score)
            for segment in segments
            for name, score in [self._names[segment.speaker]]
        )
        languages = tuple(language for language, _ in self._languages.most_common())
        await self._work.emit(encode(Transcript(named, languages)), done)
        self._told = done
