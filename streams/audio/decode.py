"""Decodes audio of a declared type to mono float samples, in bounded memory."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import BinaryIO, Final, Protocol

import msgspec
import numpy as np

from streams.audio import claims, container, mp3, pcm
from streams.audio.links import CafLink, Link, OggLink
from streams.audio.sound_files import DAMAGED, file_blocks, linked_blocks, open_sound_file, through_python
from streams.audio.sources import DescriptorSource, GuardedSource
from streams.models.protocol import Floats
from topics.errors import AudioError, AudioTooLong
from topics.media import MAX_CHANNELS, MAX_RATE, MIN_RATE, Container, Media

MAX_CHUNK_S: Final = 3600
#: Frames of one decoded chunk, 128 MiB: a mebibyte of FLAC silence can hold gigabytes.
MAX_CHUNK_FRAMES: Final = 1 << 25
MAX_FILE_S: Final = 24 * 3600
#: Samples decoded at a time, over all channels.
BLOCK_SAMPLES: Final = 1 << 19
#: Encoder delay and padding, by which a file may be shorter than it claims.
SLACK_S: Final = 0.25
BROKEN_LIMIT: Final = "decoding exceeded its CPU or memory limit"


class DecodedAudio(msgspec.Struct, frozen=True):
    """Decoded mono audio: rate in Hz, and samples, float32[n] in -1..1."""

    rate: int
    samples: Floats


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """The length that a file claims."""

    frames: int | None = None
    #: Whether the container lacks the mark of its end.
    unfinished: bool = False
    #: Whether a whole file has exactly this length.
    exact: bool = False

    def shortfall(self, frames: int, rate: int) -> str | None:
        """Return a warning if there is less audio than the file claims, else None."""
        ends = f"the audio ends at {frames / rate:.1f} s"
        if self.frames is not None and self.frames - frames > (0 if self.exact else SLACK_S * rate):
            return f"{ends}, and its header says {self.frames / rate:.1f} s: it was cut off"
        return f"{ends}, without the mark of its end: it was cut off" if self.unfinished else None


NO_CLAIM: Final = Claim()


class AudioFile:
    """An open file: `rate` in Hz, blocks averaged over `channels`. Leaving it as a context closes it.

    One thread at a time.
    """

    def __init__(
        self,
        rate: int,
        channels: int,
        blocks: Iterator[Floats],
        longest_s: int,
        frames: int | None = None,
        tell: Callable[[], int] = int,
        claim: Claim = NO_CLAIM,
    ) -> None:
        self.rate = rate
        self.channels = channels
        #: Frames that the header claims, or None.
        self.frames = frames
        #: The file's own claim, checked at the end.
        self.claim = claim
        #: Decoded blocks, with no limit on the length.
        self.unlimited = blocks
        #: Returns the number of bytes read from the source.
        self.tell = tell
        self._longest = rate * longest_s
        #: Seconds of audio before the damage; None until damage is met.
        self.broken_at: float | None = None
        #: A warning if the file claims more audio than it holds; None until everything is read.
        self.shortfall: str | None = None

    def blocks(self, cpu_seconds: float = math.inf) -> Iterator[Floats]:
        """Yield the samples in blocks, float32[n], once; memory stays bounded whatever the header claims.

        Raises:
            AudioTooLong: there is more audio than allowed.
            AudioError: the data is damaged (raised after the blocks before the damage) or holds no audio; or decoding
                and using the blocks took more than `cpu_seconds` of CPU time of this thread and its decoder.
        """
        limited = cpu_seconds < math.inf
        count, until = 0, self.processor_seconds() + cpu_seconds if limited else cpu_seconds
        try:
            for block in self.unlimited:
                count += len(block)
                if count > self._longest or (limited and self.processor_seconds() > until):
                    break
                yield block
        except AudioError:
            self.broken_at = count / self.rate
            raise
        if count > self._longest:
            raise AudioTooLong(f"the audio is longer than {self._longest // self.rate} s")
        if limited and self.processor_seconds() > until:
            raise AudioError(BROKEN_LIMIT)
        if not count:
            raise AudioError("the data holds no audio")
        self.shortfall = self.claim.shortfall(count, self.rate)

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
    """Opens files: `open_file` in this process, or `streams.decoders.pool` in a process that may crash."""

    def __call__(
        self,
        source: BinaryIO,
        media: Media,
        longest_s: int = MAX_FILE_S,
        block_samples: int | None = None,
        owner: str | None = None,
    ) -> AudioFile:
        """Open as `open_file` does, with the same errors.

        A process that decoded a file of an `owner` decodes only that owner's files afterwards.
        """


def decode_chunk(data: bytes, media: Media) -> DecodedAudio:
    """Decode a chunk, a whole file or raw PCM, in this process; channels are averaged.

    Raises:
        AudioError: it does not decode as declared, holds no audio, or exceeds a limit.
    """
    if media.container == "raw" and fits_a_block(data, media):
        return decode_block(data, media)
    audio = open_file(io.BytesIO(data), media, MAX_CHUNK_S)
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
    return DecodedAudio(media.rate, pcm.to_mono(pcm.decode(data, media.sample_format, media.channels)))


def fits_a_block(data: bytes, media: Media) -> bool:
    """Return whether raw PCM is small and whole, as in nearly every live chunk, so that it can break no limit."""
    return 0 < len(data) <= BLOCK_SAMPLES and len(data) % pcm.frame_bytes(media.sample_format, media.channels) == 0


def open_file(
    source: BinaryIO | DescriptorSource,
    media: Media,
    longest_s: int = MAX_FILE_S,
    block_samples: int | None = None,
    owner: str | None = None,
) -> AudioFile:
    """Open a file; the source is seekable, at position 0, and returns short reads only at its end.

    `block_samples` counts all channels. Errors of `source` itself are raised unchanged, here and by `AudioFile.blocks`.

    Raises:
        AudioTooLong: the header claims more than `longest_s`.
        AudioError: not the declared container, a damaged header, or a header that exceeds a limit.
    """
    block_samples = block_samples or BLOCK_SAMPLES
    if media.container == "raw":
        raw_blocks = _raw_blocks(source, media, block_samples)
        return AudioFile(media.rate, media.channels, raw_blocks, longest_s, tell=source.tell)
    kind = container.check_declared(source, media)
    guarded_source = source if isinstance(source, DescriptorSource) else GuardedSource(source)
    endless = mp3.open_endless(guarded_source) if kind == "mp3" else None
    replaced = endless is not None and isinstance(source, DescriptorSource) and source.replace(endless.beginning)
    if endless is not None and not replaced:
        guarded_source = through_python(guarded_source)
        endless = mp3.open_endless(guarded_source)
    start = container.skip_tags(guarded_source, container.HEAD)[0] if kind == "flac" else 0
    claim, length = _claim(guarded_source, kind)
    if kind == "ogg" or length is not None or start:
        guarded_source = through_python(guarded_source)
    ogg = OggLink(guarded_source) if kind == "ogg" else None
    link: Link | None = ogg
    if length is not None:
        link = CafLink(guarded_source, *length)
    elif start:
        link = Link(guarded_source, start)
    if replaced:
        source.seek(0)
    file = open_sound_file(guarded_source, link or (None if replaced else endless))
    if endless is not None and endless.claims:
        claim = Claim(endless.claimed_frames(file.frames))
    # A header of unknown length holds the largest possible number, and the length of an MP3 is unreliable. For these,
    # the limit is checked while decoding.
    frames = file.frames if file.frames < 2**62 and file.format != "MP3" else None
    check_limits(file.samplerate, file.channels, frames, longest_s)
    claimed_frames = endless.claimed_frames(file.frames) if endless else file.frames
    blocks = file_blocks(file, claimed_frames, guarded_source, block_samples)
    if ogg is not None:
        claim = Claim(frames, claim.unfinished)
    elif kind == "flac":
        claim = Claim(frames, exact=True)
    if kind in ("ogg", "flac"):
        blocks = linked_blocks(file, blocks, guarded_source, start, ogg, block_samples)
    return AudioFile(file.samplerate, file.channels, blocks, longest_s, frames, source.tell, claim)


def _claim(source: GuardedSource | DescriptorSource, kind: Container) -> tuple[Claim, tuple[int, int] | None]:
    """Return what a file claims; and for `CafLink`, where a wrong length stands and the right one."""
    claim, length = NO_CLAIM, None
    if kind == "wav":
        claim = Claim(claims.wav_frames(source))
    elif kind == "aiff":
        claim = Claim(claims.aiff_frames(source))
    elif kind == "au":
        claim = Claim(claims.au_frames(source))
    elif kind == "caf":
        frames, length = claims.caf_frames(source)
        claim = Claim(frames)
    elif kind == "ogg":
        claim = Claim(unfinished=claims.ogg_is_unfinished(source))
    if kind != "mp3":
        source.seek(0)
    return claim, length


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
    size = pcm.frame_bytes(media.sample_format, media.channels)
    while data := source.read(max(1, block_samples // media.channels) * size):
        whole = len(data) // size * size
        yield from pcm.mix(pcm.decode_unchecked(memoryview(data)[:whole], media.sample_format, media.channels))
        if whole < len(data):
            raise AudioError(f"{DAMAGED}: its last frame has {len(data) - whole} of {size} bytes")
