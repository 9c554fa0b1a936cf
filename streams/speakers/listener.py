"""Recordings of strangers as samples: looked into, decoded and searched for speech, off the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Concatenate, Final, ParamSpec, TypeVar

import numpy as np

from streams.audio import wav
from streams.audio.decode import open_file
from streams.audio.resample import Resampler, resample
from streams.models.protocol import Floats
from streams.voice.activity import RATE, Hysteresis, SileroDetector, bundled_detector
from topics import media
from topics.errors import AudioError, AudioTooLong, EngineAway, EngineError, Unavailable
from topics.media import Media
from topics.ports.prober import Prober, ProbeResult

T = TypeVar("T")
P = ParamSpec("P")

LONGEST_S: Final = 600
#: What is short may be learnt whole, and where it is a plain WAV file nobody need look into it before it is read.
SHORT_S: Final = 30
SHORT_BYTES: Final = 4 * 1024 * 1024
#: Processor time for decoding one recording: ten minutes of stereo take some three seconds, but a few megabytes of FLAC
#: can hold ten minutes of sixteen silent channels at 384 kHz.
CPU_SECONDS: Final = 20.0
#: Two long recordings need two threads each at most; the others are for short ones, which do not wait for them.
THREADS: Final = 8
#: The least speech that a voice is learnt from.
LEAST_S: Final = 1.0
#: Where this share of what was sampled is speech, two thirds of the recording are, and the vector of all of it points
#: where that of the speech alone points: their cosine is about 0.9 or more.
MOSTLY: Final = 0.5
#: Recordings of which that is asked hold twice the least, since the share is an estimate; of less all is heard at once.
SAMPLED_S: Final = 2 * LEAST_S / MOSTLY


class Listener:
    """Hears what is in a file, which is given as the descriptor of a seekable one."""

    def __init__(self, prober: Prober, activity: Callable[[], SileroDetector] = bundled_detector) -> None:
        """Listen with the threads of this object; `activity` is called in them."""
        self._prober = prober
        self._activity = activity
        self._threads = ThreadPoolExecutor(THREADS, "speakers")

    async def close(self) -> None:
        """End the threads, once nothing listens."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that works on samples; who is cancelled waits for its end, so that a gate bounds memory.

        Raises:
            EngineAway: a model in this process failed.
        """
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))
        try:
            return await asyncio.shield(future)
        except EngineError as error:
            raise EngineAway(str(error)) from error
        except asyncio.CancelledError:
            await asyncio.gather(future, return_exceptions=True)
            raise

    async def plain(self, file: int) -> tuple[Floats, bytes] | None:
        """Return what is in a short plain WAV file, float32[n] at 16 kHz, and the file; None of any other recording.

        Any other needs a look, and a decoder.

        Raises:
            Unavailable: the disk does not give it.
        """
        return await self._read(plain, file)

    async def look(self, file: int) -> ProbeResult:
        """Tell what the recording is.

        Raises:
            AudioTooLong: by its header it is longer than `LONGEST_S`.
            AudioError, Unavailable: see `Prober.probe`.
        """
        with own(file) as source:
            found = await self._prober.probe(source.fileno(), None)
        if found.length_ms is not None and found.length_ms > LONGEST_S * 1000:
            raise AudioTooLong(f"the audio is longer than {LONGEST_S} s")
        return found

    async def samples(self, file: int, found: ProbeResult) -> Floats:
        """Return a recording that was looked into, float32[n] at 16 kHz: 38 MB for the longest.

        Raises:
            AudioTooLong: it is longer than `LONGEST_S`, whatever its header says.
            AudioError: it is damaged, or takes `CPU_SECONDS` to decode.
            Unavailable: the disk does not give it.
        """
        return await self._read(decoded, file, media.parse(found.content_type))

    async def _read(
        self, function: Callable[Concatenate[BinaryIO, P], T], file: int, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with own(file) as source:
            try:
                return await self.run(function, source, *args, **kwargs)
            except OSError as error:
                raise Unavailable(f"the recording cannot be read: {error.strerror}") from error

    async def speech(self, samples: Floats) -> Floats:
        """Return the speech in float32[n] at 16 kHz, without pauses; errors as `run`."""
        return await self.run(self._speech, samples)

    @property
    def activity(self) -> SileroDetector:
        """What hears speech; loading it takes a moment, the first time."""
        return self._activity()

    def _speech(self, samples: Floats) -> Floats:
        found = self.activity.segments(blocks(samples), Hysteresis())
        cut = [samples[round(segment.start_s * RATE) : round(segment.end_s * RATE)] for segment in found]
        return np.concatenate(cut) if cut else samples[:0]

    def mostly_speech(self, samples: Floats) -> bool:
        """Tell whether `SAMPLED_S` or more, float32[n] at 16 kHz, is speech with few pauses; blocks, for `run`.

        A `False` may be wrong: not all is heard.

        Raises:
            EngineError: the model failed.
        """
        return bool(np.mean(self.activity.sampled(samples) >= Hysteresis().on) >= MOSTLY)


def own(file: int) -> BinaryIO:
    """Open a descriptor's file once more: whoever gave it may close it while somebody still reads.

    Raises:
        Unavailable: the process has too many files open.
    """
    try:
        return os.fdopen(os.dup(file), "rb")
    except OSError as error:
        raise Unavailable(f"the recording cannot be opened: {error.strerror}") from error


def blocks(samples: Floats) -> list[Floats]:
    """Return the samples second by second."""
    return np.split(samples, range(RATE, len(samples), RATE))


def plain(source: BinaryIO) -> tuple[Floats, bytes] | None:
    """Read a short plain WAV file; see `Listener.plain`."""
    source.seek(0)
    data = source.read(SHORT_BYTES + 1)
    audio = wav.read_plain(data) if len(data) <= SHORT_BYTES and wav.looks_plain(data) else None
    if audio is None or len(audio.samples) > SHORT_S * audio.rate:
        return None
    return resample(audio.samples, audio.rate, RATE), data


def decoded(source: BinaryIO, kind: Media) -> Floats:
    """Decode a file; see `Listener.samples`."""
    source.seek(0)
    audio = open_file(source, kind, LONGEST_S)
    resampler = Resampler(audio.rate, RATE)
    # Memory that is not written to is not there: what a short recording leaves of it costs nothing.
    samples, end = np.empty(LONGEST_S * RATE + 1, np.float32), 0

    def take(some: Floats) -> int:
        samples[end : end + len(some)] = some
        return end + len(some)

    try:
        for block in audio.blocks(CPU_SECONDS):
            end = take(resampler.feed(block))
    except AudioTooLong:
        raise
    except AudioError as error:
        raise AudioError(audio.fault(error)) from error
    return samples[: take(resampler.finish())]
