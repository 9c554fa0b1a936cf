"""A job's speech: decoded once, cut at pauses, transcribed by an engine in pieces, attributed to speakers."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

import msgspec

from streams import cores
from streams.audio.decode import OpenFile
from streams.clients.transcriptions import Transcription, TranscriptionClient
from streams.services import timed_text
from streams.services.pcm_file import PcmFile, decoded_audio
from streams.services.priority import NICE, lower_priority
from streams.services.service import RunSummary, ServiceRun
from streams.services.speaker_names import SpeakerNames, unknown_names
from streams.services.speech_pieces import SpeechPiece, cut_speech, detector_settings
from streams.voice.activity import CachedDetector, VoiceActivityDetector, bundled_detector
from streams.voice.clustering import MAX_CLUSTERS
from streams.voice.diarization import DiarizationTurn, SpeakerCount, diarize, lengthen_turns
from streams.voice.excerpts import excerpts
from streams.voice.overlap import DiarizationOverlap, OverlapDetector, find_overlaps
from streams.voice.speaker_engine import SpeakerEngine
from topics.errors import EngineError, ServiceError, ServiceFault
from topics.jobs.options import ANY_LANGUAGE, DEFAULT_SPEECH_MODEL
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
NOTHING_SAID: Final = "no words were recognised; hints such as repeated words can cause that: try without speech_prompt"


class SpeechService:
    """Runs `speech_analysis`; all runs share the engine's slots, which bound the pieces in flight. Loop only."""

    def __init__(
        self,
        engine: TranscriptionClient,
        speakers: SpeakerEngine | None,
        open_file: OpenFile,
        *,
        names: SpeakerNames,
        overlap: OverlapDetector | None = None,
        piece_seconds: float = 30.0,
        load_detector: Callable[[], VoiceActivityDetector] = bundled_detector,
        nice: int = NICE,
        takes_likely_language: bool = False,
    ) -> None:
        """Separate speakers with `speakers`; without it, all speech has one speaker, and a warning reports it.

        `names` finds registered speakers, and `overlap` simultaneous speech. `open_file` opens recordings.
        `piece_seconds` bounds what the engine gets at once. Threads that separate speakers add `nice` to their nice
        value. If `takes_likely_language`, each piece is sent with the likely language, that of the longest piece near
        the beginning.
        """
        self.engine = engine
        self.speakers = speakers
        self.overlap = overlap
        self.names = names
        self.load_detector = load_detector
        self.piece_s = piece_seconds
        self.takes_likely_language = takes_likely_language
        self._open_file = open_file
        # At least two, so that a short recording need not wait for a long one.
        threads = max(2, cores.usable())
        self._readers = ThreadPoolExecutor(threads, "speech-reading")
        #: Threads that separate speakers, which may take minutes.
        self.diarizers = ThreadPoolExecutor(threads, "speech-diarizing", lower_priority, (nice,))

    @property
    def limit(self) -> int:
        return self.engine.address.limit

    async def close(self) -> None:
        """Shut down the threads, once no run is left, and close the connections."""
        for pool in (self._readers, self.diarizers):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        await self.engine.close()

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Transcribe a job's speech and separate its speakers.

        Raises:
            AudioError: nothing can be decoded.
            ServiceFault: the engine failed, or the audio breaks; portions hold the speech before the break.
            EngineError: voice activity detection failed.
            Unavailable: the disk fails, or the log does not accept a portion.
        """
        requested = run.accepted.options.speech_model
        model = self.engine.address.model if requested in (None, DEFAULT_SPEECH_MODEL) else requested
        async with decoded_audio(run, self._readers, self._open_file) as (pcm, stopped):
            warnings = await TranscriptionRun(self, run, model, pcm, stopped).perform()
        if pcm.fault is not None:
            raise ServiceFault(pcm.fault)
        if pcm.warning is not None:
            warnings = (*warnings, pcm.warning)
        return RunSummary(model or "default", pcm.length_ms, warnings, pcm.silence_ms)

    def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run a function that works on samples in a thread, beside those that decode and detect speech."""
        return asyncio.get_running_loop().run_in_executor(self._readers, lambda: function(*args, **kwargs))


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
        self, service: SpeechService, run: ServiceRun, model: str | None, pcm: PcmFile, stopped: threading.Event
    ) -> None:
        self._service = service
        self._run = run
        self._model = model
        self._pcm = pcm
        self._stopped = stopped
        self._diarizes = run.accepted.options.diarizes and service.speakers is not None
        self._warnings: list[str] = []
        self._finds_language = service.takes_likely_language and run.accepted.options.speech_lang == ANY_LANGUAGE
        self._sent = 0
        #: The engine understood something.
        self._said = False
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
            detector = await self._service.read(lambda: CachedDetector(self._service.load_detector()))
            pieces = self._pieces(detector)
            first: list[SpeechPiece] = []
            while (piece := await self._service.read(next, pieces, None)) is not None:
                if self._diarizes and diarization is None:
                    loop = asyncio.get_running_loop()
                    diarization = loop.run_in_executor(self._service.diarizers, self._diarize, detector)
                if self._finds_language:
                    first.append(piece)
                    if sum(one.end_ms - one.start_ms for one in first) >= LANGUAGE_MS:
                        self._send_first(first)
                    continue
                self._send(piece)
                # Twice the slots, so that none is idle while the oldest answer is outstanding.
                await self._collect(2 * self._service.engine.address.limit)
            if self._finds_language and first:
                self._send_first(first)
            await self._collect(0)
            if options.speech_prompt and self._sent and not self._said:
                self._warnings.append(NOTHING_SAID)
            speakers = Diarization() if diarization is None else await diarization
            if speakers.warning is not None:
                self._warnings.append(speakers.warning)
            if speakers.turns:
                self._names = await self._speaker_names(speakers.turns)
            # In a thread: hours of words take a while.
            self._segments += await self._service.read(
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
        longest_s = self._service.piece_s
        segments = detector.segments(self._pcm.blocks(self._stopped), detector_settings(longest_s))
        return cut_speech(segments, longest_s)

    def _diarize(self, detector: VoiceActivityDetector) -> Diarization:
        """Return who speaks when. A failure becomes a warning, because the text remains useful."""
        assert self._service.speakers is not None
        options = self._run.accepted.options
        count = SpeakerCount(options.min_speakers or 1, options.max_speakers or MAX_CLUSTERS)
        try:
            turns = diarize(self._pcm.blocks(self._stopped), self._service.speakers, detector, count=count)
        except EngineError as error:
            return Diarization(warning=f"speakers were not separated: {error}")
        longer = lengthen_turns(turns, self._pcm.length_ms / 1000, timed_text.PAUSE_MS / 1000)
        if self._service.overlap is None:
            return Diarization(turns, longer)
        try:
            overlaps = find_overlaps(self._pcm.blocks(self._stopped), self._service.overlap, longer)
        except EngineError as error:
            return Diarization(turns, longer, warning=f"overlapping speech was not marked: {error}")
        return Diarization(turns, longer, overlaps)

    async def _speaker_names(self, turns: list[DiarizationTurn]) -> Sequence[tuple[str, float]]:
        """Return each speaker's name and score; all are unknown if names are not requested or not available."""
        accepted = self._run.accepted
        if accepted.options.speaker_profile:
            voices = await self._service.read(excerpts, turns, self._pcm.cut)
            try:
                return await self._service.names.names(accepted.organization, voices, self._warnings.append)
            except ServiceError as error:
                self._warnings.append(f"speakers were not named: {error}")
        return unknown_names(1 + max(turn.speaker for turn in turns))

    async def _transcribe(
        self, piece: SpeechPiece, number: int, longest: asyncio.Task[Transcription] | None
    ) -> Transcription:
        options = self._run.accepted.options
        likely = None if longest is None else (await asyncio.shield(longest)).language
        async with self._service.engine.slots:
            wav = await asyncio.to_thread(self._pcm.wav, piece.start_ms, piece.end_ms)
            return await self._service.engine.transcribe(
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
            self._said |= bool(answer.text.strip())
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
