"""Speech of a job: decoded once, cut at pauses, written down by an engine piece by piece, told apart by speaker."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from streams.clients.transcriptions import TranscriptionClient
from streams.jobs.priority import NICE, give_way
from streams.services.performer import Done, Work
from streams.services.recording import convert
from streams.services.transcribing import Kit, Transcribing
from streams.services.voices import Unknown, Voices
from streams.voice.activity import SileroDetector, bundled_detector
from streams.voice.speaker_engine import SpeakerEngine
from topics import media
from topics.errors import ServiceFault, Unavailable

#: What public clients always send: the deployment's own model, whichever that is.
OWN_MODEL: Final = "whisper-large-turbo"


class SpeechPerformer:
    """Runs `speech_analysis`; runs share the places of the engine, which bound the pieces in flight."""

    def __init__(
        self,
        engine: TranscriptionClient,
        speakers: SpeakerEngine | None,
        *,
        voices: Voices | None = None,
        piece_seconds: float = 30.0,
        activity: Callable[[], SileroDetector] = bundled_detector,
        nice: int = NICE,
    ) -> None:
        """Use `speakers` to tell voices apart; without it everybody is one speaker, and a warning says so.

        `piece_seconds` is the most that the engine is sent at a time. `nice` is added to the nice value of threads.
        """
        # Two at least: a short recording need not wait for a long one.
        threads = max(2, os.cpu_count() or 1)
        self._readers = ThreadPoolExecutor(threads, "speech-reading", give_way, (nice,))
        self._diarizers = ThreadPoolExecutor(threads, "speech-diarizing", give_way, (nice,))
        self._kit = Kit(engine, speakers, voices or Unknown(), activity, piece_seconds, self._readers, self._diarizers)

    @property
    def limit(self) -> int:
        """As many runs as the engine takes pieces."""
        return self._kit.engine.address.limit

    async def close(self) -> None:
        """End the threads, once no run is left, and close the connections."""
        for pool in (self._readers, self._diarizers):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        await self._kit.engine.close()

    async def perform(self, work: Work) -> Done:
        """Write down a job's speech; see `Performer`.

        Raises:
            AudioError: nothing of the audio can be decoded.
            ServiceFault: the engine failed, or the audio breaks; portions hold what precedes the break.
            Unavailable: the disk does not take the samples, or does not give them.
        """
        kit, asked = self._kit, work.accepted.options.speech_model
        model = kit.engine.address.model if asked in (None, OWN_MODEL) else asked
        kind = media.parse(work.accepted.source.content_type)
        audio = await work.audio()
        stopped = threading.Event()
        try:
            with tempfile.NamedTemporaryFile(dir=audio.parent, prefix="speech-", suffix=audio.suffix) as file:
                recording = await kit.read(convert, audio, kind, Path(file.name), stopped)
                warnings = await Transcribing(kit, work, model, recording, stopped).perform()
        except OSError as error:
            raise Unavailable(f"the spool cannot be used: {error.strerror}") from error
        finally:
            # Nobody waits for the threads of a run that was cancelled: they end at their next block.
            stopped.set()
        if recording.fault is not None:
            raise ServiceFault(recording.fault)
        return Done(model or "default", recording.length_ms, warnings)
