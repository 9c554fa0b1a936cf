"""Chunks of which every tenth crashes, stops, swells or spins its decoder, and their effect on the others."""

import gc
import io
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import psutil

from streams.audio.decode import BROKEN_LIMIT, decode_chunk
from streams.processes.child import Deadlines
from streams.processes.deaths import DEADLY
from tests.attacks.faulty_decoders import COMMAND, CRASH, FAULTS, HANG, SPIN, SWELL
from tests.audio import encoded, noise
from tests.file_pool import FilePool
from tests.process import living
from tests.waiting import wait_for
from topics.errors import AudioError
from topics.media import parse

ANY: Final = parse("application/octet-stream")
#: The error text of each fault.
SENTENCES: Final[dict[int | None, str]] = {CRASH: DEADLY, SPIN: BROKEN_LIMIT, HANG: DEADLY, SWELL: BROKEN_LIMIT}
DEADLINES: Final = Deadlines(processor=0.2, idle=0.2, wall=30)
THREADS: Final = 16


class Outcome(msgspec.Struct):
    """Result of an attack."""

    #: Chunks by error text, None for exact ones.
    said: Counter[str | None]
    #: Additional descriptors once the pool has stopped.
    descriptors: int


def attack(chunks: int) -> Outcome:
    """Decode `chunks` chunks, a tenth of them faulty.

    Raises:
        AssertionError: A good chunk is not exact, or a faulty one has the wrong error text.
    """
    good = [encoded(noise(8000, seed), 16_000, kind) for seed, kind in enumerate(("FLAC", "OGG", "MP3", "AIFF"))]
    truth = [decode_chunk(data, ANY).samples for data in good]
    bad = {rate: encoded(noise(4000), rate, "FLAC") for rate in FAULTS}
    before = _descriptors()
    pool = FilePool(COMMAND, DEADLINES)

    def one(number: int) -> str | None:
        rate = FAULTS[number // 10 % len(FAULTS)] if number % 10 == 9 else None
        sentence = None
        try:
            with pool.open_file(io.BytesIO(bad[rate] if rate else good[number % len(good)]), ANY) as audio:
                samples = np.concatenate(list(audio.blocks()))
        except AudioError as error:
            sentence = str(error)
        assert sentence == SENTENCES.get(rate), f"chunk {number}, {rate}: {sentence}"
        assert sentence or np.array_equal(samples, truth[number % len(good)]), f"chunk {number} is not exact"
        return sentence

    with ThreadPoolExecutor(THREADS) as threads:
        said = Counter(threads.map(one, range(chunks)))
    wait_for(lambda: not pool.held() and not living(psutil.Process(pool.zygote.process)))
    pool.stop()
    return Outcome(said, len(_descriptors() - before))


def _descriptors() -> set[tuple[str, Path]]:
    """Return each with what it refers to: those of other tests may close at any time."""
    gc.collect()  # Cycles that other tests left may hold some.
    found = set()
    for one in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # That of the listing itself.
            found.add((one.name, one.readlink()))
    return found
