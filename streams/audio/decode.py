"""Decodes audio of a declared type to mono float samples, in bounded memory."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

import msgspec
import numpy as np

from streams.audio import container, pcm
from streams.audio.resample import Resampler
from streams.audio.sources import DescriptorSource, GuardedSource
from streams.models.protocol import Floats
from topics.errors import AudioError, AudioTooLong, NoAudio
from topics.media import MAX_CHANNELS, MAX_RATE, MIN_RATE, MOST_GAP_S, MOST_GAPS_S, Container, Media

if TYPE_CHECKING:
    from streams.audio.ffmpeg import File

#: Samples, or a number of samples of silence that the source does not hold.
Block = Floats | int

MAX_CHUNK_S: Final = 3600
#: Frames of one decoded chunk, 128 MiB: a mebibyte of FLAC silence can hold gigabytes.
MAX_CHUNK_FRAMES: Final = 1 << 25
MAX_FILE_S: Final = 24 * 3600
#: Samples decoded at a time, over all channels.
BLOCK_SAMPLES: Final = 1 << 19
#: Notes about one recording: it may hold thousands of damaged files.
MOST_NOTES: Final = 4
#: Samples of silence in one block.
SILENT_SAMPLES: Final = 1 << 17
#: Prefix of messages about damage.
DAMAGED: Final = "the audio is damaged"
BROKEN_LIMIT: Final = "decoding exceeded its CPU or memory limit"


class DecodedAudio(msgspec.Struct, frozen=True):
    """Decoded mono audio: rate in Hz, and samples, float32[n] in -1..1."""

    rate: int
    samples: Floats


class AudioFile:
    """An open file: `rate` in Hz, blocks averaged over `channels`. Leaving it as a context closes it.

    One thread at a time.
    """

    def __init__(
        self,
        rate: int,
        channels: int,
        blocks: Iterator[Block],
        longest_s: int,
        frames: int | None = None,
        tell: Callable[[], int] = int,
        kind: Container = "raw",
    ) -> None:
        self.rate = rate
        self.channels = channels
        #: Frames that the header claims, or None.
        self.frames = frames
        self.kind = kind
        #: Decoded blocks, with no limit on the length; a number stands for so many samples of silence.
        self.unlimited = blocks
        #: Returns the number of bytes read from the source.
        self.tell = tell
        self._longest = rate * longest_s
        #: Seconds of audio before the damage; None until damage is met.
        self.broken_at: float | None = None
        #: Where `blocks` so far hold a second or more of silence that the source does not hold: (first, end) in
        #: samples. No window lies in less.
        self.gaps: list[tuple[int, int]] = []
        self._silence = 0
        #: What is wrong with the source, though it was read: complete once everything is read.
        self.notes: list[str] = []

    @property
    def warning(self) -> str | None:
        """What is wrong with the audio, though it was read; None before everything is read."""
        return "; ".join(self.notes) or None

    @property
    def silence_ms(self) -> int:
        """Milliseconds of silence in `blocks` so far that the source does not hold."""
        return self._silence * 1000 // self.rate

    def blocks(self, cpu_seconds: float = math.inf) -> Iterator[Floats]:
        """Yield the samples in blocks, float32[n], once; memory stays bounded whatever the header claims.

        Raises:
            AudioTooLong: there is more audio than allowed.
            AudioError: the data is damaged (raised after the blocks before the damage), holds no audio or too long a
                gap; or decoding and using the blocks took more than `cpu_seconds` of CPU time of this thread and its
                decoder.
        """
        limited = cpu_seconds < math.inf
        count, until, held = 0, self.processor_seconds() + cpu_seconds if limited else cpu_seconds, False
        try:
            for block in self.unlimited:
                for samples in self._zeros(count, block) if isinstance(block, int) else (block,):
                    count += len(samples)
                    if count > self._longest:
                        raise AudioTooLong(f"the audio is longer than {self._longest // self.rate} s")
                    if limited and self.processor_seconds() > until:
                        raise AudioError(BROKEN_LIMIT)
                    yield samples
                held = held or not isinstance(block, int)
        except AudioTooLong:
            raise
        except AudioError:
            self.broken_at = count / self.rate
            raise
        if not held:
            raise NoAudio

    def _zeros(self, start: int, count: int) -> Iterator[Floats]:
        """Yield `count` samples of silence that begin at sample `start`.

        Raises:
            AudioError: it is too long.
        """
        end = start + count
        self._silence += count
        if count > MOST_GAP_S * self.rate or self._silence > MOST_GAPS_S * self.rate:
            raise AudioError(
                f"{DAMAGED}: it has no sound from {start / self.rate:.1f} to {end / self.rate:.1f} s; gaps of at most "
                f"{MOST_GAP_S} s, and of {MOST_GAPS_S} s in sum, are filled with silence"
            )
        if count >= self.rate:
            self.gaps.append((start, end))
        for at in range(start, end, SILENT_SAMPLES):
            yield np.zeros(min(SILENT_SAMPLES, end - at), np.float32)

    def processor_seconds(self) -> float:
        """Return the CPU time of this thread and its decoder; only differences mean anything."""
        return time.thread_time()

    def close(self) -> None:
        """Release the decoder and end the blocks. Idempotent."""
        if isinstance(self.unlimited, Generator):
            self.unlimited.close()

    def __enter__(self) -> AudioFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def fault(self, error: AudioError) -> str:
        """Return why the audio ends early, and where if some of it was decoded."""
        if not self.broken_at:
            return str(error)
        return f"the audio breaks at {self.broken_at:.1f} s: {str(error).removeprefix(f'{DAMAGED}: ')}"


class OpenFile(Protocol):
    """Opens files: `open_file` in this process, or `streams/workers/decoded_file.py` in a process that may crash."""

    def __call__(
        self,
        source: BinaryIO,
        media: Media,
        longest_s: int = MAX_FILE_S,
        block_samples: int | None = None,
    ) -> AudioFile:
        """Open as `open_file` does, with the same errors."""


def decode_chunk(data: bytes, media: Media) -> DecodedAudio:
    """Decode a chunk, a whole file or raw PCM, in this process; channels are averaged.

    Raises:
        AudioError: it does not decode as declared, holds no audio, or exceeds a limit.
    """
    if media.container == "raw" and fits_a_block(data, media):
        return decode_block(data, media)
    audio = open_file(io.BytesIO(data), media, MAX_CHUNK_S, is_chunk=True)
    blocks, frames = [], 0
    for block in audio.blocks():
        frames += len(block)
        if frames > MAX_CHUNK_FRAMES:
            raise AudioError(f"one chunk holds more than {MAX_CHUNK_FRAMES} frames; use shorter chunks")
        blocks.append(block)
    return DecodedAudio(audio.rate, blocks[0] if len(blocks) == 1 else np.concatenate(blocks))


def decode_block(data: bytes, media: Media) -> DecodedAudio:
    """Decode raw PCM that `fits_a_block`.

    Raises:
        AudioError: a float is not finite.
    """
    frames = pcm.decode(data, media.sample_format, media.channels)
    return DecodedAudio(media.rate, pcm.to_mono(frames, pcm.mix_frames(media.rate)))


def fits_a_block(data: bytes, media: Media) -> bool:
    """Return whether raw PCM is small and whole, as in nearly every live chunk, so that it can break no limit."""
    return 0 < len(data) <= BLOCK_SAMPLES and len(data) % media.frame_bytes == 0


def open_file(
    source: BinaryIO | DescriptorSource,
    media: Media,
    longest_s: int = MAX_FILE_S,
    block_samples: int | None = None,
    *,
    is_chunk: bool = False,
) -> AudioFile:
    """Open a file; the source is seekable, at position 0, and returns short reads only at its end.

    `block_samples` counts all channels. A chunk of a stream has its place by its number, whatever time its container
    starts at. Errors of `source` itself are raised unchanged, here and by `AudioFile.blocks`.

    Raises:
        AudioTooLong: the header claims more than `longest_s`.
        AudioError: not the declared container, a damaged header, or a header that exceeds a limit.
    """
    block_samples = block_samples or BLOCK_SAMPLES
    if media.container == "raw":
        raw_blocks = _raw_blocks(source, media, block_samples)
        return AudioFile(media.rate, media.channels, raw_blocks, longest_s, tell=source.tell)
    from streams.audio import ffmpeg

    source.seek(0)
    guarded = source if isinstance(source, DescriptorSource) else GuardedSource(source)
    try:
        kind, start = container.check_declared(guarded, media)
    finally:
        guarded.check()
    file = ffmpeg.File(guarded, kind, start, container.end_of(guarded), starts=not is_chunk)
    check_limits(file.rate, file.channels, file.frames, longest_s)
    notes: list[str] = []
    blocks = _joined(guarded, file, block_samples, notes)
    audio = AudioFile(file.rate, file.channels, blocks, longest_s, file.frames, source.tell, kind)
    audio.notes = notes
    return audio


def _joined(source: GuardedSource | DescriptorSource, file: File, most: int, notes: list[str]) -> Iterator[Block]:
    """Yield the blocks of a file and of those that follow it, at the first one's rate; note what is wrong."""
    from streams.audio import ffmpeg

    rate, count = file.rate, 0
    while True:
        for block in _blocks(file, rate, most):
            count += block if isinstance(block, int) else len(block)
            yield block
        notes += file.notes[: max(0, MOST_NOTES - len(notes))]
        found = container.search(source, file.part.stopped)
        source.check()
        if found is None:
            return
        try:
            file = ffmpeg.File(source, *found, container.end_of(source), count / rate)
            check_limits(file.rate, file.channels, None, MAX_FILE_S)
        except AudioError as error:
            notes.append(f"another file begins in the data at {count / rate:.1f} s, but {error}")
            return


def _blocks(file: File, rate: int, most: int) -> Iterator[Block]:
    """Yield channel means in blocks of at most `most` samples of `rate` Hz, and the lengths of silences between."""
    run: _Run | None = None
    try:
        for silence, own_rate, frames in file.pieces():
            if run is not None and (silence or (own_rate, frames.shape[1]) != (run.rate, run.channels)):
                ended, run = run, None
                yield from _cut(ended.finish(), most)
            if silence and (samples := round(silence * rate)):
                yield samples
            if run is None:
                check_limits(own_rate, frames.shape[1], None, MAX_FILE_S)
                run = _Run(own_rate, rate, frames.shape[1], most)
            yield from _cut(run.feed(frames), most)
    except AudioError:
        if run is not None:
            yield from _cut(run.finish(), most)
        raise
    if run is not None:
        yield from _cut(run.finish(), most)


class _Run:
    """Mixes frames of one layout and converts their rate. One thread at a time."""

    def __init__(self, rate: int, rate_out: int, channels: int, most: int) -> None:
        self.rate = rate
        self.channels = channels
        #: Frames mixed at a time: whole blocks, so that the cuts change nothing.
        self._group = max(1, most // channels // pcm.MIX_FRAMES) * pcm.MIX_FRAMES
        self._held: list[Floats] = []
        self._count = 0
        self._resampler = Resampler(rate, rate_out)

    def feed(self, frames: Floats) -> Iterator[Floats]:
        self._held.append(frames)
        self._count += len(frames)
        if self._count >= self._group:
            whole = self._count // self._group * self._group
            joined = np.concatenate(self._held)
            self._held, self._count = [joined[whole:].copy()], self._count - whole
            yield from self._mixed(joined[:whole])

    def finish(self) -> Iterator[Floats]:
        if self._count:
            joined, self._held, self._count = np.concatenate(self._held), [], 0
            yield from self._mixed(joined)
        yield self._resampler.finish()

    def _mixed(self, frames: Floats) -> Iterator[Floats]:
        for start in range(0, len(frames), self._group):
            for samples in pcm.mix(frames[start : start + self._group]):
                yield self._resampler.feed(samples)


def _cut(blocks: Iterator[Floats], most: int) -> Iterator[Floats]:
    """Yield what blocks hold in blocks of 1 to `most` samples."""
    for block in blocks:
        for start in range(0, len(block), most):
            yield block[start : start + most]


def check_limits(rate: int, channels: int, frames: int | None, longest_s: int) -> None:
    """Check the header of a file; `frames` is None if the header does not state them.

    Raises:
        AudioTooLong: it claims more than `longest_s`.
        AudioError: the sample rate or the number of channels is not supported.
    """
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(f"the sample rate is {rate} Hz, allowed are {MIN_RATE} to {MAX_RATE}")
    if not 1 <= channels <= MAX_CHANNELS:
        raise AudioError(f"the audio has {channels} channels, allowed are 1 to {MAX_CHANNELS}")
    if frames is not None and frames > longest_s * rate:
        raise AudioTooLong(f"the audio is longer than {longest_s} s")


def _raw_blocks(source: BinaryIO | DescriptorSource, media: Media, block_samples: int) -> Iterator[Floats]:
    size, mixed = media.frame_bytes, pcm.mix_frames(media.rate)
    while data := source.read(max(1, block_samples // media.channels // mixed) * mixed * size):
        whole = len(data) // size * size
        frames = pcm.decode_unchecked(memoryview(data)[:whole], media.sample_format, media.channels)
        yield from pcm.mix(frames, mixed)
        if whole < len(data):
            raise AudioError(f"{DAMAGED}: its last frame has {len(data) - whole} of {size} bytes")
