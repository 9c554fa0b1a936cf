"""Decoding in processes of their own over decoding in this one: processor time of all of them."""

import functools
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import soundfile

from benchmarks import processes
from benchmarks.audio import RATE
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, value_row
from streams.audio import decode
from streams.audio.decode import OpenFile
from streams.decoders.child import process_seconds
from streams.decoders.decoder_process import DecoderProcess
from streams.decoders.pool import DecoderPool
from tests.audio import encoded, noise
from topics.media import parse

KINDS: Final = ("FLAC", "MP3")
ANY: Final = parse("application/octet-stream")
#: Hz and channels: what a microphone sends, and what most programs record.
FORMATS: Final = ((RATE, 1), (44_100, 2))
BAR: Final = 1.25
CHUNK_S: Final = 0.5
CHUNKS: Final = 2000
FILE_S: Final = 60
#: The file is this many times as long: encoders take one such piece at a time.
REPEATS: Final = 10


class CountingPool(DecoderPool):
    """A pool that adds up what its processes spend."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        self._counted: dict[int, float] = {}

    def give_back(self, decoder: DecoderProcess, owner: str | None) -> None:
        """Count what a decoder spent since it was counted last, from its beginning."""
        seconds = decoder.child.processor_seconds()
        self._seconds += seconds - self._counted.get(decoder.child.number, 0.0)
        self._counted[decoder.child.number] = seconds
        super().give_back(decoder, owner)

    @property
    def seconds(self) -> float:
        """Return the processor seconds of the zygote and of all decoders so far."""
        return self._seconds + process_seconds(self._zygote.process)


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for chunks and for a whole file of each kind."""
    pool = CountingPool()
    pool.start()
    with processes.temporary_directory() as directory:
        for kind in KINDS:
            for rate, channels in FORMATS:
                samples = noise(int(CHUNK_S * rate) * channels).reshape(-1, channels)
                chunk = functools.partial(io.BytesIO, encoded(samples, rate, kind))
                name = f"decoding chunks of {kind}, {rate} Hz, {channels} channels"
                yield _row(name, pool, chunk, setup.size(CHUNKS), setup.pairs)
            file = _write(directory / kind, kind)
            yield _row(f"decoding a file of {kind}", pool, functools.partial(_open, file), 1, setup.pairs)
    pool.stop()


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


def _write(path: Path, kind: str) -> Path:
    with soundfile.SoundFile(path, "w", RATE, 1, format=kind) as file:
        for seed in range(REPEATS):
            file.write(noise(FILE_S * RATE, seed))
    return path


def _row(name: str, pool: CountingPool, source: Callable[[], BinaryIO], times: int, pairs: int) -> Row:
    ratios, beside = [], {"elsewhere CPU ms": 0.0, "here CPU ms": 0.0}
    _spend(pool, pool.open_file, source, times), _spend(pool, decode.open_file, source, times)
    for _ in range(pairs):
        elsewhere = _spend(pool, pool.open_file, source, times)
        here = _spend(pool, decode.open_file, source, times)
        ratios.append(elsewhere / here)
        beside = {"elsewhere CPU ms": 1000 * elsewhere / times, "here CPU ms": 1000 * here / times}
    return value_row(name, ratios, "ratio", BAR, beside)


def _spend(pool: CountingPool, open_file: OpenFile, source: Callable[[], BinaryIO], times: int) -> float:
    """Return the processor seconds of decoding a source so many times, in all processes."""
    began = time.process_time() + pool.seconds
    for _ in range(times):
        with source() as opened, open_file(opened, ANY) as audio:
            for _ in audio.blocks():
                pass
    return time.process_time() + pool.seconds - began
