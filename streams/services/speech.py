"""A job's speech: decoded once, cut at pauses, transcribed by an engine in pieces, attributed to speakers."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from streams.audio.decode import OpenFile
from streams.clients.transcriptions import TranscriptionClient
from streams.services.pcm_file import decoded_audio
from streams.services.priority import NICE, lower_priority
from streams.services.service import RunSummary, ServiceRun
from streams.services.speaker_names import SpeakerNames
from streams.services.transcription_run import SpeechResources, TranscriptionRun
from streams.voice.activity import VoiceActivityDetector, bundled_detector
from streams.voice.overlap import OverlapDetector
from streams.voice.speaker_engine import SpeakerEngine
from topics.errors import ServiceFault
from topics.jobs.options import DEFAULT_SPEECH_MODEL


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
        value. If `takes_likely_language`, each piece is sent with the recording's language.
        """
        self._open_file = open_file
        # At least two, so that a short recording need not wait for a long one.
        threads = max(2, os.cpu_count() or 1)
        self._readers = ThreadPoolExecutor(threads, "speech-reading")
        self._diarizers = ThreadPoolExecutor(threads, "speech-diarizing", lower_priority, (nice,))
        self._resources = SpeechResources(
            engine,
            speakers,
            overlap,
            names,
            load_detector,
            piece_seconds,
            self._readers,
            self._diarizers,
            takes_likely_language,
        )

    @property
    def limit(self) -> int:
        return self._resources.engine.address.limit

    async def close(self) -> None:
        """Shut down the threads, once no run is left, and close the connections."""
        for pool in (self._readers, self._diarizers):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        await self._resources.engine.close()

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Transcribe a job's speech and separate its speakers.

        Raises:
            AudioError: nothing can be decoded.
            ServiceFault: the engine failed, or the audio breaks; portions hold the speech before the break.
            EngineError: voice activity detection failed.
            Unavailable: the disk fails, or the log does not accept a portion.
        """
        resources, requested = self._resources, run.accepted.options.speech_model
        model = resources.engine.address.model if requested in (None, DEFAULT_SPEECH_MODEL) else requested
        async with decoded_audio(run, self._readers, self._open_file) as (pcm, stopped):
            warnings = await TranscriptionRun(resources, run, model, pcm, stopped).perform()
        if pcm.fault is not None:
            raise ServiceFault(pcm.fault)
        if pcm.shortfall is not None:
            warnings = (*warnings, pcm.shortfall)
        return RunSummary(model or "default", pcm.length_ms, warnings)
