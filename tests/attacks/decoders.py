"""Chunks of which every tenth crashes, stops, swells or spins its decoder, and their effect on the others.

python -m tests.attacks.decoders --chunks 10000
"""

import argparse
import io
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import psutil

from streams.audio.decode import BROKEN_LIMIT, decode_chunk
from streams.decoders.child import Deadlines
from streams.decoders.pool import DIED, DecoderPool
from streams.decoders.processes import Zygote
from tests.attacks.faulty_decoders import COMMAND, CRASH, FAULTS, HANG, SPIN, SWELL
from tests.audio import encoded, noise
from tests.process import living
from topics.errors import AudioError
from topics.media import parse

ANY: Final = parse("application/octet-stream")
#: The error text of each fault.
SENTENCES: Final[dict[int | None, str]] = {CRASH: DIED, SPIN: BROKEN_LIMIT, HANG: DIED, SWELL: BROKEN_LIMIT}
DEADLINES: Final = Deadlines(processor=0.2, idle=0.2, wall=30)
THREADS: Final = 16


class Outcome(msgspec.Struct):
    """Result of an attack."""

    exact: int
    #: Faults by error text.
    said: Counter[str]
    #: Additional descriptors once the pool has stopped; waiting decoders before it stops.
    descriptors: int
    decoders: int
    #: The slowest chunk without a fault.
    slowest_ms: float


def attack(chunks: int, kill_every: int = 0) -> Outcome:
    """Decode `chunks` chunks, a tenth of them faulty; with `kill_every`, also kill as many decoders.

    Raises:
        AssertionError: A good chunk is not exact, or a faulty one has the wrong error text.
    """
    good = [encoded(noise(8000, seed), 16_000, kind) for seed, kind in enumerate(("FLAC", "OGG", "MP3", "AIFF"))]
    truth = [decode_chunk(data, ANY).samples for data in good]
    bad = {rate: encoded(noise(4000), rate, "FLAC") for rate in FAULTS}
    before, seconds, said = _descriptors(), [], Counter[str]()
    pool = DecoderPool(deadlines=DEADLINES, zygote=Zygote(COMMAND))
    pool.start()
    done = threading.Event()
    killer = threading.Thread(target=_kill, args=(done, kill_every))
    if kill_every:
        killer.start()

    def one(number: int) -> None:
        rate = FAULTS[number // 10 % len(FAULTS)] if number % 10 == 9 else None
        began, sentence = time.perf_counter(), None
        try:
            with pool.open_file(io.BytesIO(bad[rate] if rate else good[number % len(good)]), ANY) as audio:
                samples = np.concatenate(list(audio.blocks()))
        except AudioError as error:
            sentence = str(error)
        assert sentence == SENTENCES.get(rate), f"chunk {number}, {rate}: {sentence}"
        if sentence is not None:
            said[sentence] += 1
            return
        assert np.array_equal(samples, truth[number % len(good)]), f"chunk {number} is not exact"
        seconds.append(time.perf_counter() - began)

    try:
        with ThreadPoolExecutor(THREADS) as threads:
            for _ in threads.map(one, range(chunks)):
                pass
    finally:
        done.set()
        if kill_every:
            killer.join()
    waiting = len(list(_decoders()))
    pool.stop()
    return Outcome(len(seconds), said, _descriptors() - before, waiting, 1000 * max(seconds))


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _decoders() -> Iterable[psutil.Process]:
    for zygote in living(psutil.Process()):
        yield from living(zygote)


def _kill(done: threading.Event, most: int) -> None:
    """Kill a decoder at intervals."""
    while most and not done.wait(0.05):
        for decoder in list(_decoders())[:1]:
            os.kill(decoder.pid, signal.SIGKILL)
            most -= 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=10_000)
    began, outcome = time.perf_counter(), attack(parser.parse_args().chunks)
    print(f"{outcome.exact} chunks exact; {dict(outcome.said)}")
    print(f"slowest without a fault {outcome.slowest_ms:.0f} ms; left: {outcome.descriptors} descriptors,", end=" ")
    print(f"{outcome.decoders} decoders; {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
