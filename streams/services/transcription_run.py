"""One run of `speech_analysis`: from a recording's samples to its transcript, piece by piece."""

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
from streams.voice.clustering import MAX_CLUSTERS
from streams.voice.diarization import DiarizationTurn, SpeakerCount, diarize, lengthen_turns
from streams.voice.excerpts import excerpts
from streams.voice.overlap import DiarizationOverlap, OverlapDetector, find_overlaps
from streams.voice.speaker_engine import SpeakerEngine
from topics.errors import EngineError, ServiceError
from topics.jobs.options import ANY_LANGUAGE
from topics.jobs.payloads import Segment, Transcript, encode

T = TypeVar("T")
P = ParamSpec("P")

#: The longest of the first pieces, within this much speech, determines the recording's language.
LANGUAGE_MS: Final = 60_000
#: A piece this long determines its own language and does not wait.
OWN_LANGUAGE_MS: Final = 20_000
PORTION_SEGMENTS: Final = 200
PORTION_CHARACTERS: Final = 50_000
#: Bytes counted for each word with times and for each overlap.
WORD_CHARACTERS: Final = 10
MAX_LANGUAGE_CHARACTERS: Final = 40
#: A partial portion is emitted after this share of the work since the last one.
STEP: Final = 0.05


class SpeechResources(msgspec.Struct, frozen=True):
    """The engine, models and threads that all runs share."""

    engine: TranscriptionClient
    #: None: speakers are not separated.
    speakers: SpeakerEngine | None
    #: None: simultaneous speech is not marked.
    overlap: OverlapDetector | None
    names: SpeakerNames
    #: Returns the speech detector; called in a thread.
    load_detector: Callable[[], VoiceActivityDetector]
    #: Maximum length of a piece, in seconds.
    piece_s: float
    #: Threads that decode and detect speech; and threads that separate speakers, which may take minutes.
    readers: Executor
    diarizers: Executor
    #: The engine accepts a piece's likely language, taken from the longest piece near the beginning.
    takes_likely_language: bool = False

    def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run a function that works on samples in a thread of `readers`."""
        return asyncio.get_running_loop().run_in_executor(self.readers, lambda: function(*args, **kwargs))


class Diarization(msgspec.Struct, frozen=True):
    """Who speaks when in a recording."""

    turns: list[DiarizationTurn] = []
    #: Turns as a listener would mark them, and the parts where another speaker talks too.
    longer: list[DiarizationTurn] = []
    overlaps: list[DiarizationOverlap] = []
    #: Why part of it is missing.
    warning: str | None = None


class TranscriptionRun:
    """Transcribes one recording. Loop only, except `_pieces` and `_diarize`."""

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
        self._finds_language = resources.takes_likely_language and run.accepted.options.speech_lang == ANY_LANGUAGE
        self._sent = 0
        #: The piece that determines the language, once sent.
        self._longest: asyncio.Task[Transcription] | None = None
        #: Pieces sent to the engine whose answers are not read yet, in order of time.
        self._pending: deque[tuple[SpeechPiece, asyncio.Task[Transcription]]] = deque()
        #: Transcribed text without speakers yet.
        self._texts: list[timed_text.TimedText] = []
        #: Total length (ms) of the pieces in which the engine found each language.
        self._languages: Counter[str] = Counter()
        #: Segments not in a portion yet.
        self._segments: list[Segment] = []
        #: Name and score of each speaker; without diarization, one unknown speaker.
        self._names: Sequence[tuple[str, float]] = unknown_names(1)
        #: Share of the work reported with the last portion.
        self._emitted = 0.0

    async def perform(self) -> tuple[str, ...]:
        """Emit the transcript in at least one portion, and return the warnings.

        Raises:
            ServiceFault: the engine failed.
            EngineError: voice activity detection failed.
        """
        options = self._run.accepted.options
        if options.diarizes and not self._diarizes:
            self._warnings.append("speakers were not separated: this deployment has no diarization model")
        if options.speaker_profile and not self._diarizes:
            self._warnings.append("speakers were not named: they were not separated")
        diarization: asyncio.Future[Diarization] | None = None
        try:
            detector = await self._resources.read(lambda: CachedDetector(self._resources.load_detector()))
            pieces = self._pieces(detector)
            first: list[SpeechPiece] = []
            while (piece := await self._resources.read(next, pieces, None)) is not None:
                if self._diarizes and diarization is None:
                    loop = asyncio.get_running_loop()
                    diarization = loop.run_in_executor(self._resources.diarizers, self._diarize, detector)
                if self._finds_language:
                    first.append(piece)
                    if sum(one.end_ms - one.start_ms for one in first) >= LANGUAGE_MS:
                        self._send_first(first)
                    continue
                self._send(piece)
                # Twice the slots, so that none is idle while the oldest answer is outstanding.
                await self._collect(2 * self._resources.engine.address.limit)
            if self._finds_language and first:
                self._send_first(first)
            await self._collect(0)
            speakers = Diarization() if diarization is None else await diarization
            if speakers.warning is not None:
                self._warnings.append(speakers.warning)
            if speakers.turns:
                self._names = await self._speaker_names(speakers.turns)
            # In a thread: hours of words take a while.
            self._segments += await self._resources.read(
                lambda: timed_text.stretch(
                    list(timed_text.transcript_segments(self._texts, speakers.turns, with_words=options.word_times)),
                    speakers.longer,
                    speakers.overlaps,
                )
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

    def _send_first(self, pieces: Sequence[SpeechPiece]) -> None:
        """Send the first pieces; short ones wait for the longest, which determines the language."""
        self._finds_language = False
        longest = max(pieces, key=lambda piece: piece.end_ms - piece.start_ms)
        transcription = self._transcribe(longest, self._sent + pieces.index(longest), None)
        self._longest = asyncio.create_task(transcription)
        for piece in pieces:
            if piece is longest:
                self._pending.append((piece, self._longest))
                self._sent += 1
            else:
                self._send(piece)

    def _send(self, piece: SpeechPiece) -> None:
        longest = None if piece.end_ms - piece.start_ms >= OWN_LANGUAGE_MS else self._longest
        transcription = self._transcribe(piece, self._sent, longest)
        self._pending.append((piece, asyncio.create_task(transcription)))
        self._sent += 1

    def _pieces(self, detector: VoiceActivityDetector) -> Iterator[SpeechPiece]:
        longest_s = self._resources.piece_s
        segments = detector.segments(self._pcm.blocks(self._stopped), detector_settings(longest_s))
        return cut_speech(segments, longest_s)

    def _diarize(self, detector: VoiceActivityDetector) -> Diarization:
        """Return who speaks when. A failure becomes a warning, because the text remains useful."""
        assert self._resources.speakers is not None
        options = self._run.accepted.options
        count = SpeakerCount(options.min_speakers or 1, options.max_speakers or MAX_CLUSTERS)
        try:
            turns = diarize(self._pcm.blocks(self._stopped), self._resources.speakers, detector, count=count)
        except EngineError as error:
            return Diarization(warning=f"speakers were not separated: {error}")
        longer = lengthen_turns(turns, self._pcm.length_ms / 1000, timed_text.PAUSE_MS / 1000)
        if self._resources.overlap is None:
            return Diarization(turns, longer)
        try:
            overlaps = find_overlaps(self._pcm.blocks(self._stopped), self._resources.overlap, longer)
        except EngineError as error:
            return Diarization(turns, longer, warning=f"overlapping speech was not marked: {error}")
        return Diarization(turns, longer, overlaps)

    async def _speaker_names(self, turns: list[DiarizationTurn]) -> Sequence[tuple[str, float]]:
        """Return each speaker's name and score; all are unknown if names are not requested or not available."""
        accepted = self._run.accepted
        if accepted.options.speaker_profile:
            voices = await self._resources.read(excerpts, turns, self._pcm.cut)
            try:
                return await self._resources.names.names(accepted.organization, voices, self._warnings.append)
            except ServiceError as error:
                self._warnings.append(f"speakers were not named: {error}")
        return unknown_names(1 + max(turn.speaker for turn in turns))

    async def _transcribe(
        self, piece: SpeechPiece, number: int, longest: asyncio.Task[Transcription] | None
    ) -> Transcription:
        options = self._run.accepted.options
        likely = None if longest is None else (await asyncio.shield(longest)).language
        async with self._resources.engine.slots:
            wav = await asyncio.to_thread(self._pcm.wav, piece.start_ms, piece.end_ms)
            return await self._resources.engine.transcribe(
                wav,
                f"{self._run.run}-{number}",
                model=self._model,
                language=None if options.speech_lang == ANY_LANGUAGE else options.speech_lang,
                likely_language=likely,
                prompt=options.speech_prompt,
            )

    async def _collect(self, most: int) -> None:
        """Take answers to the oldest pieces until at most `most` are pending, and any further ones already there."""
        while self._pending and (len(self._pending) > most or self._pending[0][1].done()):
            piece, task = self._pending[0]
            answer = await task
            self._pending.popleft()
            if answer.language:
                self._languages[answer.language[:MAX_LANGUAGE_CHARACTERS]] += piece.end_ms - piece.start_ms
            with_words = self._run.accepted.options.word_times
            texts = timed_text.timed_texts(answer, piece, by_word=self._diarizes or with_words)
            if self._diarizes:
                self._texts += texts
            else:
                self._segments += timed_text.transcript_segments(texts, [], with_words=with_words)
            await self._emit(min(1.0, piece.end_ms / self._pcm.length_ms))

    async def _emit(self, share: float, *, last: bool = False) -> None:
        """Emit full portions, then a partial one if it is the `last` or `STEP` of the work is done since."""
        while count := self._full_portion():
            await self._emit_portion(count, share)
        if last or share - self._emitted >= STEP:
            await self._emit_portion(len(self._segments), share)

    def _full_portion(self) -> int:
        """Return how many segments fill a portion; 0 if there are too few."""
        characters = 0
        for count, segment in enumerate(self._segments, 1):
            characters += len(segment.text) + WORD_CHARACTERS * (len(segment.words) + len(segment.overlaps))
            if count == PORTION_SEGMENTS or characters >= PORTION_CHARACTERS:
                return count
        return 0

    async def _emit_portion(self, count: int, share: float) -> None:
        segments, self._segments = self._segments[:count], self._segments[count:]
        named_segments = tuple(
            msgspec.structs.replace(
                segment,
                name=name,
                score=score,
                overlaps=tuple(
                    msgspec.structs.replace(overlap, name=self._names[overlap.speaker][0])
                    for overlap in segment.overlaps
                ),
            )
            for segment in segments
            for name, score in [self._names[segment.speaker]]
        )
        languages = tuple(language for language, _ in self._languages.most_common())
        await self._run.emit(encode(Transcript(named_segments, languages)), share)
        self._emitted = share
