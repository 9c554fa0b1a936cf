"""Probes recordings in workers, a few at a time."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from streams.audio.decode import OpenFile
from streams.workers.first_second import probe_recording
from topics.errors import Unavailable
from topics.media import Media
from topics.ports.prober import MAX_PROBES, ProbeResult


class RecordingProber:
    """Implements `topics.ports.prober.Prober`. Loop only."""

    def __init__(self, open_file: OpenFile) -> None:
        self._open_file = open_file
        self._threads = ThreadPoolExecutor(MAX_PROBES, "probing")

    async def close(self) -> None:
        """Shut down the threads, once no probe is left."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def probe(self, file: int, declared: Media | None) -> ProbeResult:
        try:
            copy = os.dup(file)
        except OSError as error:
            raise Unavailable(f"the recording cannot be read now: {error.strerror}") from error
        probing = self._threads.submit(self._probe, copy, declared)
        # A probe that was cancelled while it waited for a thread never closes its copy.
        probing.add_done_callback(lambda probe: os.close(copy) if probe.cancelled() else None)
        return await asyncio.wrap_future(probing)

    def _probe(self, file: int, declared: Media | None) -> ProbeResult:
        try:
            with os.fdopen(file, "rb") as source:
                return probe_recording(source, declared, self._open_file)
        except OSError as error:
            raise Unavailable(f"the recording cannot be read now: {error.strerror}") from error
