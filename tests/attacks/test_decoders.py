"""Decoders that crash, hang, swell or spin lose only their own chunks, and leave nothing behind."""

import gc
import io
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pytest

from streams.audio.decode import BROKEN_LIMIT, decode_chunk
from streams.processes.deaths import DEADLY
from tests.attacks.faulty_decoders import COMMAND, DEADLINES, FAULTS, SENTENCES
from tests.audio import encoded, noise
from tests.file_pool import FilePool
from tests.lengths import length
from tests.process import living
from tests.waiting import wait_for
from topics.errors import AudioError
from topics.media import parse

#: A tenth of them is faulty. A multiple of forty, so that the four faults are equally frequent.
CHUNKS: Final = length("FAULTY_CHUNKS", 200)
ANY: Final = parse("application/octet-stream")
THREADS: Final = 16

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + CHUNKS)]


def test_faulty_chunks_lose_only_themselves() -> None:
    """Each good chunk is exact, and each faulty one has the error of its fault."""
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
        said = Counter(threads.map(one, range(CHUNKS)))
    wait_for(lambda: not pool.held() and not living(psutil.Process(pool.zygote.process)))
    pool.stop()
    assert said == {None: CHUNKS * 9 // 10, DEADLY: CHUNKS // 20, BROKEN_LIMIT: CHUNKS // 20}
    assert not _descriptors() - before


def _descriptors() -> set[tuple[str, Path]]:
    """Return each with what it refers to: those of other tests may close at any time."""
    gc.collect()  # Cycles that other tests left may hold some.
    found = set()
    for one in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # That of the listing itself.
            found.add((one.name, one.readlink()))
    return found
