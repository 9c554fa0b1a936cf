"""Translates a job into English with the speech engine, which hears each turn of the transcript again."""

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from typing import Final

from streams.audio.decode import OpenFile
from streams.clients.transcriptions import SpeechTranslationClient
from streams.services.pcm_file import PcmFile, decoded_audio
from streams.services.service import RunSummary, ServiceRun
from topics import languages
from topics.errors import ServiceFault
from topics.jobs import payloads
from topics.jobs.options import ANY_LANGUAGE, Service
from topics.jobs.payloads import Segment, Transcript

ENGLISH: Final = "en"
#: Kept on both sides of a turn, so that the first and last words are whole.
PAD_MS: Final = 200
PORTION_TURNS: Final = 50


class SpeechTranslationService:
    """Runs `translation` if no translation engine is set. Loop only."""

    def __init__(
        self, engine: SpeechTranslationClient | None, open_file: OpenFile, piece_seconds: float, needed: str
    ) -> None:
        """Translate into English with `engine`; without it, reject all languages.

        `open_file` opens recordings. `piece_seconds` bounds what the engine gets at once. `needed` tells the operator
        what other languages need.
        """
        self._engine = engine
        self._open_file = open_file
        self._piece_ms = round(1000 * piece_seconds)
        self._needed = needed
        self._readers = ThreadPoolExecutor(self.limit, "translation-reading")

    @property
    def limit(self) -> int:
        return 1 if self._engine is None else self._engine.address.limit

    async def close(self) -> None:
        """Shut down the threads, once no run is left, and close the connections."""
        await asyncio.to_thread(self._readers.shutdown, cancel_futures=True)
        if self._engine is not None:
            await self._engine.close()

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Translate a job's transcript, turn by turn.

        Raises:
            AudioError: nothing can be decoded.
            ServiceFault: the language needs an engine that is not set, or speech analysis or the engine failed.
            Unavailable: the disk fails, or the log does not accept a portion.
        """
        target = run.accepted.options.translation_target_lang
        if self._engine is None or languages.code(target) != ENGLISH:
            raise ServiceFault(f"translation into {target} needs an engine: {self._needed}")
        transcripts = [payloads.transcript(portion) for portion in run.portions(Service.SPEECH)]
        if not transcripts:
            raise ServiceFault("speech_analysis failed: there is nothing to translate")
        turns = [turn for transcript in transcripts for turn in transcript.segments]
        spoken = _languages(run.accepted.options.speech_lang, transcripts)
        if not turns or spoken == [ENGLISH]:
            texts = tuple(turn.text for turn in turns)
            await run.emit(payloads.encode(payloads.Translated(target, texts)), 1.0)
            return RunSummary(self._engine.address.model or "default", run.audio_ms() if turns else 0)
        async with decoded_audio(run, self._readers, self._open_file) as (pcm, _):
            language = spoken[0] if len(spoken) == 1 else None
            for first in range(0, len(turns), PORTION_TURNS):
                batch = turns[first : first + PORTION_TURNS]
                texts = await self._translate(self._engine, run, pcm, batch, language)
                await run.emit(payloads.encode(payloads.Translated(target, texts)), (first + len(batch)) / len(turns))
        return RunSummary(self._engine.address.model or "default", run.audio_ms())

    async def _translate(
        self,
        engine: SpeechTranslationClient,
        run: ServiceRun,
        pcm: PcmFile,
        turns: Sequence[Segment],
        language: str | None,
    ) -> tuple[str, ...]:
        async def translated(start_ms: int, end_ms: int) -> str:
            async with engine.slots:
                wav = await asyncio.to_thread(pcm.wav, start_ms, end_ms)
                answer = await engine.transcribe(
                    wav, f"{run.run}-{start_ms}", model=engine.address.model, likely_language=language
                )
                return answer.text.strip()

        stretches = [self._stretches(turn, pcm.length_ms) for turn in turns]
        tasks = [asyncio.create_task(translated(*stretch)) for parts in stretches for stretch in parts]
        try:
            texts = iter(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return tuple(" ".join(filter(None, islice(texts, len(parts)))) for parts in stretches)

    def _stretches(self, turn: Segment, length_ms: int) -> Sequence[tuple[int, int]]:
        """Split a turn into equally long stretches that the engine accepts."""
        start, end = max(0, turn.start_ms - PAD_MS), min(length_ms, turn.end_ms + PAD_MS)
        count = max(1, math.ceil((end - start) / self._piece_ms))
        ends = [start + (end - start) * part // count for part in range(count + 1)]
        return list(pairwise(ends))


def _languages(asked: str, transcripts: Sequence[Transcript]) -> list[str]:
    """Return the spoken languages, by code if known."""
    heard = (asked,) if asked != ANY_LANGUAGE else transcripts[-1].languages
    return list(dict.fromkeys(languages.code(language) or language for language in heard))
