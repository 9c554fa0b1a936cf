"""Decoding in separate processes relative to decoding in this one: processor time of all processes.

The pool of decoders decodes files. Chunks of live sessions are decoded by the worker that scores them; their rows are
the worker's extra cost over the same samples as raw PCM.
"""

import asyncio
import functools
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import soundfile

from benchmarks import processes
from benchmarks.audio import RATE
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, value_row
from benchmarks.procfs import cpu_seconds
from infra import models
from streams.audio import decode
from streams.audio.decode import OpenFile
from streams.decoders.child import process_seconds
from streams.decoders.decoder_process import DecoderProcess
from streams.decoders.pool import DecoderPool
from streams.decoders.processes import Zygote
from streams.models import manifest
from streams.workers.messages import Beginning, memory_bytes, slot_bytes
from streams.workers.session import WorkerSession
from streams.workers.workers import Workers
from tests.audio import encoded, noise
from topics.geometry import SESSIONS
from topics.media import parse
from topics.sessions.records import Cursor

KINDS: Final = ("FLAC", "MP3")
ANY: Final = parse("application/octet-stream")
#: Hz and channels: of microphones, and of most recording programs.
FORMATS: Final = ((RATE, 1), (44_100, 2))
BAR: Final = 1.25
#: Scores the chunks: the faster model.
MODEL: Final = "sed_mini"
CHUNK_S: Final = 0.5
CHUNKS: Final = 2000
FILE_S: Final = 60
#: How often the file repeats its audio; encoders take one piece at a time.
REPEATS: Final = 10


class CountingPool(DecoderPool):
    """A pool that adds up the processor time of its processes."""

    def __init__(self, zygote: Zygote) -> None:
        super().__init__(zygote=zygote)
        self._seconds = 0.0
        self._counted: dict[int, float] = {}

    def give_back(self, decoder: DecoderProcess, owner: str | None) -> None:
        """Count what a decoder spent since the last count."""
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
    zygote = Zygote()
    pool = CountingPool(zygote)
    pool.start()
    zygote.load(models.directory(MODEL))
    with processes.temporary_directory() as directory:
        for kind in KINDS:
            for rate, channels in FORMATS:
                yield asyncio.run(_chunk_row(zygote, kind, rate, channels, setup.size(CHUNKS), setup.pairs))
            file = _write(directory / kind, kind)
            yield _row(f"decoding a file of {kind}", pool, functools.partial(_open, file), 1, setup.pairs)
    pool.stop()


async def _chunk_row(zygote: Zygote, kind: str, rate: int, channels: int, times: int, pairs: int) -> Row:
    samples = noise(int(CHUNK_S * rate) * channels).reshape(-1, channels)
    chunk, raw = encoded(samples, rate, kind), (samples * 32767).astype(np.int16).tobytes()
    raw_type = f"audio/x-raw; rate={rate}; format=s16le; channels={channels}"
    workers = Workers(1, functools.partial(zygote.fork_worker, memory_bytes(slot_bytes(0))))
    await workers.start()
    ratios, beside = [], {"elsewhere CPU ms": 0.0, "here CPU ms": 0.0}
    for _ in range(pairs):
        elsewhere = await _spend_in_worker(workers, f"audio/{kind.lower()}", chunk, times)
        elsewhere -= await _spend_in_worker(workers, raw_type, raw, times)
        began = time.process_time()
        _decode(decode.open_file, functools.partial(io.BytesIO, chunk), times)
        here = time.process_time() - began
        ratios.append(elsewhere / here)
        beside = {"elsewhere CPU ms": 1000 * elsewhere / times, "here CPU ms": 1000 * here / times}
    await workers.stop()
    name = f"a chunk of {kind} in a worker, {rate} Hz, {channels} channels"
    return value_row(name, ratios, "ratio", BAR, beside)


async def _spend_in_worker(workers: Workers, content_type: str, chunk: bytes, times: int) -> float:
    """Return the processor seconds of all processes for `times` chunks of a session, one step each."""
    model = manifest.read(models.directory(MODEL)).model_id
    beginning = Beginning(model, SESSIONS.window_ms, SESSIONS.hop_ms, parse(content_type), Cursor(), 0)
    session = WorkerSession(workers, "project", beginning, beginning.media.container != "raw")
    await session.take([chunk], CHUNK_S)
    began = cpu_seconds([os.getpid()])
    for _ in range(times):
        await session.take([chunk], CHUNK_S)
    spent = cpu_seconds([os.getpid()]) - began
    session.close()
    return spent


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
    """Return the processor seconds of decoding a source `times` times, in all processes."""
    began = time.process_time() + pool.seconds
    _decode(open_file, source, times)
    return time.process_time() + pool.seconds - began


def _decode(open_file: OpenFile, source: Callable[[], BinaryIO], times: int) -> None:
    for _ in range(times):
        with source() as opened, open_file(opened, ANY) as audio:
            for _ in audio.blocks():
                pass
