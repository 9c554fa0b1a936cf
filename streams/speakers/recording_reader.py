"""Reads clients' recordings off the event loop: probes and decodes them and finds their speech."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Concatenate, Final, ParamSpec, TypeVar

import numpy as np

from streams.audio import wav
from streams.audio.decode import OpenFile
from streams.audio.resample import Resampler, resample
from streams.models.protocol import Floats
from streams.voice import loudness as levels
from streams.voice.activity import SileroDetector, bundled_detector
from streams.voice.speech_segments import RATE, Hysteresis
from topics import media
from topics.errors import AudioError, AudioTooLong, EngineAway, EngineError, Unavailable
from topics.media import Media
from topics.ports.prober import Prober, ProbeResult

T = TypeVar("T")
P = ParamSpec("P")

MAX_RECORDING_S: Final = 600
#: A recording of at most this length may be embedded whole; a plain WAV file is then read without a probe.
SHORT_S: Final = 30
SHORT_BYTES: Final = 4 * 1024 * 1024
#: CPU time for decoding one recording: ten minutes of stereo take some three seconds, but a few megabytes of FLAC can
#: hold ten minutes of sixteen silent channels at 384 kHz.
CPU_SECONDS: Final = 20.0
#: The same for a passage of a job's recording, which may end a day after its beginning: some 90 s.
PASSAGE_CPU_SECONDS: Final = 300.0
#: Two long recordings need at most two threads each; the rest keep short ones from waiting.
THREADS: Final = 8
#: The shortest speech for enrolling a voice.
MIN_SPEECH_S: Final = 1.0
#: If this share of the sampled frames is speech, two thirds of the recording are. Then the vectors of the whole and of
#: its speech alone nearly agree: their cosine is about 0.9 or more.
MOSTLY_SPEECH_SHARE: Final = 0.5
#: A sampled recording must hold twice the shortest speech, since the share is an estimate; shorter ones are searched.
MIN_SAMPLED_S: Final = 2 * MIN_SPEECH_S / MOSTLY_SPEECH_SHARE


class RecordingReader:
    """Reads files, given as descriptors of seekable files, in separate threads. Loop only."""

    def __init__(
        self, prober: Prober, open_file: OpenFile, load_detector: Callable[[], SileroDetector] = bundled_detector
    ) -> None:
        """Decode with `open_file` and detect speech with the result of `load_detector`; threads call both each time."""
        self._prober = prober
        self._open_file = open_file
        self._load_detector = load_detector
        self._threads = ThreadPoolExecutor(THREADS, "speakers")

    async def close(self) -> None:
        """Shut down the threads, once nothing is read."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread; if cancelled, wait for its end, so that admission bounds memory.

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

    async def short_wav(self, file: int) -> tuple[Floats, bytes] | None:
        """Return the samples of a short plain WAV file, float32[n] at 16 kHz, and the file.

        Return None for any other recording, which must be probed before it is decoded.

        Raises:
            Unavailable: the file cannot be read from disk.
        """
        return await self._read(read_short_wav, file)

    async def probe(self, file: int) -> ProbeResult:
        """Return the container, rate and length of a recording.

        Raises:
            AudioTooLong: its header claims more than `MAX_RECORDING_S`.
            AudioError: it is not supported audio.
            Unavailable: no child process for probing is available.
        """
        with reopen(file) as source:
            result = await self._prober.probe(source.fileno(), None)
        if result.length_ms is not None and result.length_ms > MAX_RECORDING_S * 1000:
            raise AudioTooLong(f"the audio is longer than {MAX_RECORDING_S} s")
        return result

    async def samples(self, file: int, probe: ProbeResult) -> Floats:
        """Return the samples of a probed recording, float32[n] at 16 kHz: 38 MB for the longest.

        Raises:
            AudioTooLong: it is longer than `MAX_RECORDING_S`, whatever its header claims.
            AudioError: it is damaged, or takes more than `CPU_SECONDS` to decode.
            Unavailable: the file cannot be read from disk.
        """
        return await self._read(decode_recording, file, media.parse(probe.content_type), self._open_file)

    async def passage(self, file: int, declared: Media, spans: Sequence[tuple[int, int]]) -> bytes:
        """Join stretches of a recording, (start, end) in milliseconds and in order, into one WAV file.

        Raises:
            AudioError: it is damaged before the end of the last stretch, or takes more than `PASSAGE_CPU_SECONDS`.
            Unavailable: the file cannot be read from disk.
        """
        task = asyncio.current_task()
        assert task is not None
        return await self._read(decode_passage, file, declared, spans, self._open_file, task.cancelling)

    async def _read(
        self, function: Callable[Concatenate[BinaryIO, P], T], file: int, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with reopen(file) as source:
            try:
                return await self.run(function, source, *args, **kwargs)
            except OSError as error:
                raise Unavailable(f"the recording cannot be read: {error.strerror}") from error

    async def speech(self, samples: Floats) -> Floats:
        """Return the speech in float32[n] at 16 kHz, without pauses.

        Raises:
            EngineAway: voice activity detection failed.
        """
        return await self.run(self._speech, samples)

    @property
    def detector(self) -> SileroDetector:
        """The speech detector; the first use loads it, which takes a moment."""
        return self._load_detector()

    def _speech(self, samples: Floats) -> Floats:
        segments = self.detector.segments(split_seconds(levels.levelled(samples)), Hysteresis())
        pieces = [samples[round(segment.start_s * RATE) : round(segment.end_s * RATE)] for segment in segments]
        return np.concatenate(pieces) if pieces else samples[:0]

    def is_mostly_speech(self, samples: Floats) -> bool:
        """Return whether float32[n] at 16 kHz, at least `MIN_SAMPLED_S`, is speech with few pauses. Call it by `run`.

        False may be wrong, because only some frames are examined.

        Raises:
            EngineError: the model failed.
        """
        probabilities = self.detector.sampled_probabilities(levels.levelled(samples))
        return bool(np.mean(probabilities >= Hysteresis().on) >= MOSTLY_SPEECH_SHARE)


def reopen(file: int) -> BinaryIO:
    """Open a descriptor's file again, so that its owner may close it during reading.

    Raises:
        Unavailable: the process has too many files open.
    """
    try:
        return os.fdopen(os.dup(file), "rb")
    except OSError as error:
        raise Unavailable(f"the recording cannot be opened: {error.strerror}") from error


def split_seconds(samples: Floats) -> list[Floats]:
    """Split float32[n] at 16 kHz into blocks of a second."""
    return np.split(samples, range(RATE, len(samples), RATE))


def read_short_wav(source: BinaryIO) -> tuple[Floats, bytes] | None:
    """Return the samples of a short plain WAV file, float32[n] at 16 kHz, and the file; None for any other file."""
    source.seek(0)
    data = source.read(SHORT_BYTES + 1)
    audio = wav.read_plain(data) if len(data) <= SHORT_BYTES and wav.looks_plain(data) else None
    if audio is None or len(audio.samples) > SHORT_S * audio.rate:
        return None
    return resample(audio.samples, audio.rate, RATE), data


def decode_recording(source: BinaryIO, declared: Media, open_file: OpenFile) -> Floats:
    """Decode a whole file with `open_file` to float32[n] at 16 kHz.

    Raises:
        AudioTooLong: it is longer than `MAX_RECORDING_S`, whatever its header claims.
        AudioError: it is damaged, or takes more than `CPU_SECONDS` to decode.
    """
    source.seek(0)
    audio = open_file(source, declared, MAX_RECORDING_S)
    resampler = Resampler(audio.rate, RATE)
    # Untouched pages take no memory, so the unused rest of the array costs nothing.
    samples, end = np.empty(MAX_RECORDING_S * RATE + 1, np.float32), 0

    def append(block: Floats) -> int:
        samples[end : end + len(block)] = block
        return end + len(block)

    with audio:
        try:
            for block in audio.blocks(CPU_SECONDS):
                end = append(resampler.feed(block))
        except AudioTooLong:
            raise
        except AudioError as error:
            raise AudioError(audio.fault(error)) from error
    return samples[: append(resampler.finish())]


def decode_passage(
    source: BinaryIO,
    declared: Media,
    spans: Sequence[tuple[int, int]],
    open_file: OpenFile,
    cancelled: Callable[[], object],
) -> bytes:
    """Join stretches of a file, (start, end) in milliseconds and in order, into one WAV file of 16 kHz.

    Once `cancelled` returns something, nothing more is decoded, and the result is of no use.

    Raises:
        AudioError: it is damaged before the end of the last stretch, or takes more than `PASSAGE_CPU_SECONDS`.
    """
    source.seek(0)
    audio = open_file(source, declared)
    resampler = Resampler(audio.rate, RATE)
    edges = [(start * RATE // 1000, end * RATE // 1000) for start, end in spans]
    pieces = [np.empty(0, np.float32)]
    at = 0

    def cut(samples: Floats) -> int:
        cuts = (samples[max(first - at, 0) : max(end - at, 0)] for first, end in edges)
        # Copies, because even an empty view would keep its whole block in memory.
        pieces.extend(piece.copy() for piece in cuts if len(piece))
        return at + len(samples)

    with audio:
        try:
            for block in audio.blocks(PASSAGE_CPU_SECONDS):
                at = cut(resampler.feed(block))
                if at >= edges[-1][1] or cancelled():
                    break
            else:
                at = cut(resampler.finish())
        except AudioError as error:
            raise AudioError(audio.fault(error)) from error
    return wav.encode(np.concatenate(pieces), RATE)
