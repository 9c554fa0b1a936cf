"""A job's audio for speech engines: a file of 16-bit mono samples at 16 kHz, readable from any position."""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from streams.audio import wav
from streams.audio.decode import OpenFile
from streams.audio.resample import Resampler
from streams.audio.wav import SAMPLE_BYTES
from streams.models.protocol import Floats
from streams.services.service import ServiceRun
from streams.voice import loudness as levels
from streams.voice.speech_segments import RATE
from topics import media
from topics.errors import AudioError, Unavailable
from topics.media import Media

#: Samples read at a time: a stopped run ends after at most one block.
BLOCK: Final = 4 * RATE


class Stopped(Exception):
    """The run was cancelled while a thread worked for it."""


class PcmFile(msgspec.Struct, frozen=True):
    """The samples in `path`, a file without a header."""

    path: Path
    samples: int
    #: Where and why the audio breaks or ends early; None if it was read to its end.
    fault: str | None = None
    #: What is wrong with the audio, though it was read.
    warning: str | None = None
    #: Amplifies soft recordings to the level at which voices are found.
    gain: float = 1.0
    #: Milliseconds of silence that the file does not hold.
    silence_ms: int = 0

    @property
    def length_ms(self) -> int:
        return self.samples * 1000 // RATE

    def blocks(self, stopped: threading.Event) -> Iterator[Floats]:
        """Yield the samples in blocks, float32[n] in -1..1, amplified by `gain`.

        Raises:
            Stopped: `stopped` was set.
        """
        with self.path.open("rb") as file:
            while data := file.read(BLOCK * SAMPLE_BYTES):
                raise_if_stopped(stopped)
                yield levels.amplified(wav.from_pcm16(data), self.gain)

    def wav(self, start_ms: int, end_ms: int) -> bytes:
        return wav.wav_file(self._read(start_ms * RATE // 1000, end_ms * RATE // 1000), RATE)

    def cut(self, first: int, end: int) -> Floats:
        """Return samples [first, end), float32[n] in -1..1."""
        return wav.from_pcm16(self._read(first, end))

    def _read(self, first: int, end: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(first * SAMPLE_BYTES)
            return file.read((end - first) * SAMPLE_BYTES)


@asynccontextmanager
async def decoded_audio(
    run: ServiceRun, threads: Executor, open_file: OpenFile
) -> AsyncIterator[tuple[PcmFile, threading.Event]]:
    """Decode a run's audio with `open_file` in one of the `threads`; delete the samples at the end.

    Also provide an event that is set at the end. Threads that read the samples must then stop: nobody waits for them.

    Raises:
        AudioError: nothing can be decoded.
        Unavailable: the log does not answer, or the disk fails or has no room.
    """
    audio = await run.audio()
    source_media = media.parse(run.accepted.source.content_type)
    stopped = threading.Event()
    try:
        with tempfile.NamedTemporaryFile(dir=audio.parent, prefix="speech-", suffix=audio.suffix) as file:
            arguments = audio, source_media, Path(file.name), stopped, open_file, run.check_room
            yield await asyncio.get_running_loop().run_in_executor(threads, decode_to_pcm, *arguments), stopped
    except OSError as error:
        raise Unavailable(f"the spool cannot be used: {error.strerror}") from error
    finally:
        stopped.set()


def decode_to_pcm(
    audio: Path,
    declared: Media,
    path: Path,
    stopped: threading.Event,
    open_file: OpenFile,
    check_room: Callable[[int], None],
) -> PcmFile:
    """Decode a file with `open_file` into `path`, an existing empty file, in bounded memory.

    If the audio breaks after its beginning, keep it up to the break; `PcmFile.fault` states where and why. Call
    `check_room` with the number of bytes before writing them.

    Raises:
        AudioError: nothing can be decoded.
        Stopped: `stopped` was set.
        Unavailable: the error of `check_room`.
    """
    # Open `path` without creating it: a cancelled run may already have removed it.
    with audio.open("rb") as source, path.open("r+b") as out, open_file(source, declared) as file:
        resampler, meter = Resampler(file.rate, RATE), levels.Meter()
        fault: str | None = None
        try:
            for block in file.blocks():
                raise_if_stopped(stopped)
                data = wav.to_pcm16(meter.add(resampler.feed(block)))
                check_room(len(data))
                out.write(data)
        except AudioError as error:
            if not resampler.position:
                raise
            fault = file.fault(error)
        out.write(wav.to_pcm16(meter.add(resampler.finish())))
        return PcmFile(path, out.tell() // SAMPLE_BYTES, fault, file.warning, meter.gain, file.silence_ms)


def raise_if_stopped(stopped: threading.Event) -> None:
    if stopped.is_set():
        raise Stopped
