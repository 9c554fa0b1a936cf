"""Looks into recordings with the decoders, a few at a time."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from streams.audio.decode import OpenFile
from streams.decoders.first_second import probe_recording
from topics.errors import Unavailable
from topics.media import Media
from topics.ports.prober import ProbeResult

MAX_PROBES: Final = 4


class RecordingProber:
    """The port `topics.ports.prober.Prober`. Loop only."""

    def __init__(self, open_file: OpenFile) -> None:
        """Decode with what `open_file` opens."""
        self._open_file = open_file
        self._threads = ThreadPoolExecutor(MAX_PROBES, "probing")

    async def close(self) -> None:
        """End the threads, once no probe is left."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def probe(self, file: int, declared: Media | None) -> ProbeResult:
        """Decode the first second of a seekable file, given as a descriptor, whose position changes.

        Only raw PCM, which nothing can recognise, has to be `declared`.

        Raises:
            AudioTooLong: the recording is longer than any that is analysed.
            AudioError: it is no audio that can be analysed.
            Unavailable: no decoder can be had now, or the file cannot be read.
        """
        try:
            copy = os.dup(file)
        except OSError as error:
            raise Unavailable(f"the recording cannot be looked into now: {error.strerror}") from error
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._probe, copy, declared)

    def _probe(self, file: int, declared: Media | None) -> ProbeResult:
        try:
            with os.fdopen(file, "rb") as source:
                return probe_recording(source, declared, self._open_file)
        except OSError as error:
            raise Unavailable(f"the recording cannot be looked into now: {error.strerror}") from error
