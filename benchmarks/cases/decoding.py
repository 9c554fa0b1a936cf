"""Decoding in separate processes relative to decoding in this one: processor time of all processes.

Each file is decoded by a worker of its own, chunks of live sessions by the worker that scores them; their rows are the
worker's extra cost over the same samples as raw PCM.
"""

import asyncio
import functools
import io
import os
import time
from collections.abc import Iterator, Sequence
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
from streams.models import manifest
from streams.processes.zygote_process import Zygote
from streams.workers import COMMAND
from streams.workers.decoded_file import FileDecoder
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


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for chunks and for a whole file of each kind."""
    zygote = Zygote(COMMAND)
    zygote.load(models.directory(MODEL))
    with processes.temporary_directory() as directory:
        for kind in KINDS:
            for rate, channels in FORMATS:
                yield asyncio.run(_chunk_row(zygote, kind, rate, channels, setup.size(CHUNKS), setup.pairs))
            file = _write(directory / kind, kind)
            yield asyncio.run(_file_row(zygote, f"decoding a file of {kind}", file, setup.pairs))
    zygote.stop()


def _workers(zygote: Zygote, count: int) -> Workers:
    return Workers(count, functools.partial(zygote.fork, memory_bytes(slot_bytes(0))))


async def _chunk_row(zygote: Zygote, kind: str, rate: int, channels: int, times: int, pairs: int) -> Row:
    samples = noise(int(CHUNK_S * rate) * channels).reshape(-1, channels)
    chunk, raw = encoded(samples, rate, kind), (samples * 32767).astype(np.int16).tobytes()
    raw_type = f"audio/x-raw; rate={rate}; format=s16le; channels={channels}"
    workers = _workers(zygote, 1)
    await workers.start()
    spent = []
    for _ in range(pairs):
        elsewhere = await _spend_in_worker(workers, f"audio/{kind.lower()}", chunk, times)
        elsewhere -= await _spend_in_worker(workers, raw_type, raw, times)
        began = time.process_time()
        for _ in range(times):
            _decode(decode.open_file, io.BytesIO(chunk))
        spent.append((elsewhere, time.process_time() - began))
    await workers.stop()
    return _row(f"a chunk of {kind} in a worker, {rate} Hz, {channels} channels", spent, times)


async def _spend_in_worker(workers: Workers, content_type: str, chunk: bytes, times: int) -> float:
    """Return the processor seconds of all processes for `times` chunks of a session, one step each."""
    model = manifest.read(models.directory(MODEL)).model_id
    beginning = Beginning(model, SESSIONS.window_ms, SESSIONS.hop_ms, parse(content_type), Cursor(), 0)
    session = WorkerSession(workers, "project", beginning, beginning.media.container != "raw")
    session.absorb(await session.ask([chunk], CHUNK_S))
    began = cpu_seconds([os.getpid()])
    for _ in range(times):
        session.absorb(await session.ask([chunk], CHUNK_S))
    spent = cpu_seconds([os.getpid()]) - began
    session.close()
    return spent


def _write(path: Path, kind: str) -> Path:
    with soundfile.SoundFile(path, "w", RATE, 1, format=kind) as file:
        for seed in range(REPEATS):
            file.write(noise(FILE_S * RATE, seed))
    return path


async def _file_row(zygote: Zygote, name: str, file: Path, pairs: int) -> Row:
    workers = _workers(zygote, 0)
    await workers.start()
    open_file = FileDecoder(workers).open_file

    async def spend(open_file: OpenFile) -> float:
        return await asyncio.to_thread(_spend, open_file, file)

    await spend(open_file), await spend(decode.open_file)
    spent = [(await spend(open_file), await spend(decode.open_file)) for _ in range(pairs)]
    await workers.stop()
    return _row(name, spent, 1)


def _row(name: str, spent: Sequence[tuple[float, float]], times: int) -> Row:
    """Return the row of pairs of seconds elsewhere and here, each of decoding `times` times."""
    elsewhere, here = (1000 * seconds / times for seconds in spent[-1])
    ratios = [elsewhere / here for elsewhere, here in spent]
    return value_row(name, ratios, "ratio", BAR, {"elsewhere CPU ms": elsewhere, "here CPU ms": here})


def _spend(open_file: OpenFile, file: Path) -> float:
    """Return the processor seconds of decoding a file, in this process and the worker."""
    began = time.process_time()
    with file.open("rb") as source:
        worker = _decode(open_file, source)
    return time.process_time() + worker - began


def _decode(open_file: OpenFile, source: BinaryIO) -> float:
    """Decode a file; return the processor seconds of its worker so far, before the last block."""
    elsewhere = 0.0
    with open_file(source, ANY) as audio:
        for _ in audio.blocks():
            elsewhere = audio.processor_seconds() - time.thread_time()
    return elsewhere
