"""Reads sound files by libsndfile, in blocks of mono samples."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import soundfile

from streams.audio import flac, mp3, pcm
from streams.audio.links import Link, OggLink, following_flac
from streams.audio.sources import DescriptorSource, GuardedSource
from streams.models.protocol import Floats
from topics.errors import AudioError

#: Frames of a usual FLAC frame.
FLAC_FRAMES: Final = 4096
#: Bytes read from a file at a time.
BUFFER_BYTES: Final = 1 << 16
#: Prefix of messages about damage.
DAMAGED: Final = "the audio is damaged"


class SequentialSoundFile(soundfile.SoundFile):  # type: ignore[misc]
    """A file read from beginning to end, so that soundfile does not seek after each read. One thread at a time."""

    @cached_property
    def format(self) -> str:
        """The container; cached because each query of libsndfile costs as much as decoding some milliseconds."""
        return str(super().format)

    def seekable(self) -> bool:
        """Return False: a seek in an MP3 is slow and inexact."""
        return False

    def position(self) -> int:
        """Return how many frames were read; 0 if libsndfile does not tell it, as for GSM 6.10."""
        return self.tell() if super().seekable() else 0


def through_python(source: GuardedSource | DescriptorSource) -> GuardedSource:
    """Return a source that libsndfile reads through Python, some hundred bytes at a time."""
    if isinstance(source, GuardedSource):
        return source
    return GuardedSource(io.BufferedReader(io.FileIO(source.descriptor, closefd=False), BUFFER_BYTES))


def open_sound_file(
    guarded_source: GuardedSource | DescriptorSource, reader: mp3.EndlessMp3 | Link | None
) -> SequentialSoundFile:
    """Open a file, through `reader` if given.

    Raises:
        AudioError: libsndfile cannot read it.
    """
    try:
        if reader is None and isinstance(guarded_source, DescriptorSource):
            file = SequentialSoundFile(guarded_source.descriptor, closefd=False)
        else:
            file = SequentialSoundFile(reader or guarded_source)
    except MemoryError:
        raise
    except Exception as error:  # libsndfile reports damage by several types
        guarded_source.check()
        raise AudioError(f"the audio cannot be read: {_cause(error)}") from error
    guarded_source.check()
    return file


def file_blocks(
    file: SequentialSoundFile, claimed_frames: int, guarded_source: GuardedSource | DescriptorSource, block_samples: int
) -> Iterator[Floats]:
    """Yield blocks, float32[n], of at most `block_samples` over all channels; close the file.

    Raises:
        AudioError: the audio is damaged; what comes before is yielded first.
    """
    most = max(1, block_samples // file.channels)
    if file.format == "MP3":
        # The length is unreliable, and the whole buffer is filled with NaN before each read.
        most = min(most, file.samplerate)
    # The claimed length bounds each read, because libsndfile clears what it cannot fill. Reading a few frames more
    # shows whether the claim is true. Not for FLAC: its decoder reports zeros after the end as damage.
    extra = {"FLAC": 0, "MP3": mp3.PADDING}.get(file.format, 64)
    # Numpy converts integers to the same floats as libsndfile, several times as fast.
    kind = np.int16 if file.subtype == "PCM_16" else np.float32
    remaining = claimed_frames
    with file:
        while remaining + extra > 0:
            frames = np.empty((min(most, remaining) or extra, file.channels), kind)
            if file.format == "MP3":
                # After damage, the decoder does not report how many frames it read; NaN marks their end.
                frames.fill(np.nan)
            # An MP3's encoder padding follows the claimed end; if more follows, the claim is wrong.
            at_end, count, before = file.format == "MP3" and not remaining, 0, 0
            # libsndfile fills the rest of a read with what follows the damage, or with zeros, so read frame by frame.
            step = FLAC_FRAMES if file.format == "FLAC" else len(frames)
            try:
                while count < len(frames):
                    before, part = file.position(), frames[count : count + step]
                    count += (read := file.buffer_read_into(part, frames.dtype.name))
                    if read < len(part):
                        break
                frames = frames[:count]
            except Exception as error:  # as above
                guarded_source.check()
                if at_end:
                    return
                count += file.position() - before
                if file.format == "MP3":
                    count = int(np.isnan(frames[:, 0]).argmax())
                yield from pcm.mix(_floats(frames[: max(0, count)]))
                raise AudioError(f"{DAMAGED}: {_cause(error)}") from error
            guarded_source.check()
            if not len(frames) or (at_end and len(frames) < extra):
                return
            remaining = file.frames if at_end else max(0, remaining - len(frames))
            yield from pcm.mix(_floats(frames))


def linked_blocks(
    file: SequentialSoundFile,
    blocks: Iterator[Floats],
    source: GuardedSource | DescriptorSource,
    start: int,
    ogg: OggLink | None,
    block_samples: int,
) -> Iterator[Floats]:
    """Yield the blocks of a file, which begins at `start`, and of those that follow it."""
    layout, count = (file.samplerate, file.channels), 0
    # Of the first FLAC file: only its claim is checked, so a later one may not end early.
    claimed = file.frames if ogg is None else 0
    while True:
        try:
            for block in blocks:
                count += len(block)
                yield block
        except AudioError:
            is_cut_off = 0 < claimed < 2**62 and flac.ends_after(source, count, claimed)
            source.check()
            if not is_cut_off:
                raise
            return
        following = following_flac(source, start) if ogg is None else ogg.following()
        source.check()
        if ogg is not None and ogg.damage is not None:
            raise AudioError(f"{DAMAGED}: {ogg.damage}")
        if following is None:
            return
        source, start, claimed = through_python(source), following, 0
        ogg = None if ogg is None else OggLink(source, start)
        file = open_sound_file(source, ogg or Link(source, start))
        if (file.samplerate, file.channels) != layout:
            raise AudioError(f"{DAMAGED}: its rate or its channels change")
        blocks = file_blocks(file, file.frames, source, block_samples)


def _floats(frames: Floats | npt.NDArray[np.int16]) -> Floats:
    if frames.dtype == np.int16:
        return np.multiply(frames, np.float32(2**-15), dtype=np.float32)
    return frames.astype(np.float32, copy=False)


def _cause(error: Exception) -> str:
    text = getattr(error, "error_string", "") or str(error) or type(error).__name__
    return str(text).removeprefix("Error : ").splitlines()[0].rstrip(".")
