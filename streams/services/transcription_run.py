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
from streams.services import timed_text
from streams.services.pcm_file import PcmFile
from streams.services.service import ServiceRun
from streams.services.speaker_names import SpeakerNames, unknown_names
from streams.services.speech_pieces import SpeechPiece, cut_speech, detector_settings
from streams.voice.activity import CachedDetector, VoiceActivityDetector
from streams.voice.diarization import DiarizationTurn, diarize
from streams.voice.excerpts import excerpts
from streams.voice.speaker_engine import SpeakerEngine
from topics.errors import EngineError, ServiceError
from topics.jobs.options import ANY_LANGUAGE
from topics.jobs.payloads import Segment, Transcript, encode

T = TypeVar("T")
P = ParamSpec("P")

PORTION_SEGMENTS: Final = 200
PORTION_CHARACTERS: Final = 50_000
MAX_LANGUAGE_CHARACTERS: Final = 40
#: A portion that is not full is emitted once this share of the work was done since the last one.
STEP: Final = 0.05


class SpeechResources(msgspec.Struct, frozen=True):
    """What all runs share: engine, models and threads."""

    engine: TranscriptionClient
    #: None: speakers are not told apart.
    speakers: SpeakerEngine | None
    names: SpeakerNames
    #: Returns the detector of speech; called in a thread.
    load_detector: Callable[[], VoiceActivityDetector]
    #: Maximum length of a piece, in seconds.
    piece_s: float
    #: Threads that decode and detect speech, and threads that tell speakers apart, which may take minutes.
    readers: Executor
    diarizers: Executor

    def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Call a function that works on samples, in a thread of the readers."""
        return asyncio.get_running_loop().run_in_executor(self.readers, lambda: function(*args, **kwargs))


class TranscriptionRun:
    """Transcribes one recording."""

    def __init__(
        self, resources: SpeechResources, run: ServiceRun, model: str | None, pcm: PcmFile, stopped: threading.Event
    ) -> None:
        self._resources = resources
        self._run = run
        self._model = model
        self._pcm = pcm
        self._stopped = stopped
        self._diarizes = run.accepted.options.diarizes and resources.speakers is not None
        self._warnings: list[str] = []
        #: Pieces that were handed to the engine and whose answers were not read yet, in order of time.
        self._pending: deque[tuple[SpeechPiece, asyncio.Task[Transcription]]] = deque()
        #: Transcribed text that waits for its speakers.
        self._texts: list[timed_text.TimedText] = []
        #: Length (ms) of the pieces in which the engine heard each language.
        self._languages: Counter[str] = Counter()
        #: Segments that no portion holds yet.
        self._segments: list[Segment] = []
        #: Name and score of each speaker; without diarization there is one unknown speaker.
        self._names: Sequence[tuple[str, float]] = unknown_names(1)
        #: Share of the work that the last portion reported.
        self._emitted = 0.0

    async def perform(self) -> tuple[str, ...]:
        """Emit the transcript, at least one portion of it, and return the warnings.

        Raises:
            ServiceFault: the engine failed.
            EngineError: voice activity detection failed.
        """
        options = self._run.accepted.options
        if options.diarizes and not self._diarizes:
            self._warnings.append("speakers are not told apart: there is no model for it")
        if options.speaker_profile and not self._diarizes:
            self._warnings.append("speakers are not named: they are not told apart")
        diarization: asyncio.Future[list[DiarizationTurn]] | None = None
        try:
            detector = await self._resources.read(lambda: CachedDetector(self._resources.load_detector()))
            pieces = self._pieces(detector)
            number = 0
            while (piece := await self._resources.read(next, pieces, None)) is not None:
                if self._diarizes and diarization is None:
                    loop = asyncio.get_running_loop()
                    diarization = loop.run_in_executor(self._resources.diarizers, self._diarize, detector)
                self._pending.append((piece, asyncio.create_task(self._transcribe(piece, number))))
                number += 1
                # Twice the slots, so that none is empty while the answer to the oldest piece is waited for.
                await self._collect(2 * self._resources.engine.address.limit)
            await self._collect(0)
            turns = [] if diarization is None else await self._turns(diarization)
            if turns:
                self._names = await self._speaker_names(turns)
            # Hours of words take a while.
            self._segments += await self._resources.read(
                lambda: list(timed_text.transcript_segments(self._texts, turns))
            )
            await self._emit(1.0, last=True)
        finally:
            if diarization is not None:
                diarization.cancel()
            tasks = [task for _, task in self._pending]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return tuple(self._warnings)

    def _pieces(self, detector: VoiceActivityDetector) -> Iterator[SpeechPiece]:
        longest_s = self._resources.piece_s
        segments = detector.segments(self._pcm.blocks(self._stopped), detector_settings(longest_s))
        return cut_speech(segments, longest_s)

    def _diarize(self, detector: VoiceActivityDetector) -> list[DiarizationTurn]:
        assert self._resources.speakers is not None
        return diarize(self._pcm.blocks(self._stopped), self._resources.speakers, detector)

    async def _turns(self, diarization: asyncio.Future[list[DiarizationTurn]]) -> list[DiarizationTurn]:
        try:
            return await diarization
        except EngineError as error:
            # The text is there, and is worth more than the names of who said it.
            self._warnings.append(f"speakers are not told apart: {error}")
            return []

    async def _speaker_names(self, turns: list[DiarizationTurn]) -> Sequence[tuple[str, float]]:
        """Return name and score of each speaker; all are unknown where names are not asked for or cannot be had."""
        accepted = self._run.accepted
        if accepted.options.speaker_profile:
            voices = await self._resources.read(excerpts, turns, self._pcm.cut)
            try:
                return await self._resources.names.names(accepted.organization, voices)
            except ServiceError as error:
                self._warnings.append(f"speakers are not named: {error}")
        return unknown_names(1 + max(turn.speaker for turn in turns))

    async def _transcribe(self, piece: SpeechPiece, number: int) -> Transcription:
        language = self._run.accepted.options.speech_lang
        async with self._resources.engine.slots:
            wav = await asyncio.to_thread(self._pcm.wav, piece.start_ms, piece.end_ms)
            return await self._resources.engine.transcribe(
                wav,
                f"{self._run.run}-{number}",
                model=self._model,
                language=None if language == ANY_LANGUAGE else language,
            )

    async def _collect(self, most: int) -> None:
        """Take the answers to the oldest pieces until at most `most` are pending, and those that are there already."""
        while self._pending and (len(self._pending) > most or self._pending[0][1].done()):
            piece, task = self._pending[0]
            answer = await task
            self._pending.popleft()
            if answer.language:
                self._languages[answer.language[:MAX_LANGUAGE_CHARACTERS]] += piece.end_ms - piece.start_ms
            texts = timed_text.timed_texts(answer, piece, by_word=self._diarizes)
            if self._diarizes:
                self._texts += texts
            else:
                self._segments += timed_text.transcript_segments(texts, [])
            await self._emit(min(1.0, piece.end_ms / self._pcm.length_ms))

    async def _emit(self, share: float, *, last: bool = False) -> None:
        """Emit full portions; and a smaller one if it is the last, or if `STEP` of the work was done since."""
        while count := self._full_portion():
            await self._emit_portion(count, share)
        if last or share - self._emitted >= STEP:
            await self._emit_portion(len(self._segments), share)

    def _full_portion(self) -> int:
        """Return how many segments fill a portion, 0 where there are not enough of them."""
        characters = 0
        for count, segment in enumerate(self._segments, 1):
            characters += len(segment.text)
            if count == PORTION_SEGMENTS or characters >= PORTION_CHARACTERS:
                return count
        return 0

    async def _emit_portion(self, count: int, share: float) -> None:
        segments, self._segments = self._segments[:count], self._segments[count:]
        named_segments = tuple(
            msgspec.structs.replace(segment, name=name, score=score)
            for segment in segments
            for name, score in [self._names[segment.speaker]]
        )
        languages = tuple(language for language, _ in self._languages.most_common())
        await self._run.emit(encode(Transcript(named_segments, languages)), share)
        self._emitted = share
