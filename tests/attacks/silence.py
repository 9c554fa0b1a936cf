"""Chunks of FLAC silence, each with the maximum frames of a chunk, and the memory that they take."""

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import soundfile

from benchmarks.procfs import family_bytes
from streams.audio.decode import MAX_CHUNK_FRAMES
from tests.audio import RATE, encoded, noise
from tests.contract.api import Api
from tests.process import ServiceProcess

FLAC: Final = "audio/flac"
#: Chunks of each attack at least, and the pause between two: their analysis takes much longer.
CHUNKS: Final = 15
PAUSE_S: Final = 0.1


def silence() -> bytes:
    """Return silence as a FLAC file: about 100 KB for 2,097 seconds."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, 1, format="FLAC", subtype="PCM_16", compression_level=1.0) as out:
        for at in range(0, MAX_CHUNK_FRAMES, RATE):
            out.write(np.zeros(min(RATE, MAX_CHUNK_FRAMES - at), np.int16))
    return file.getvalue()


def most_memory(service: ServiceProcess, seconds: float, done: Callable[[], bool]) -> int:
    """Return the most bytes that the service's processes take for some seconds, and until something is done."""
    assert service.process is not None
    most, end = 0, time.monotonic() + seconds
    while not done() or time.monotonic() < end:
        most = max(most, family_bytes(service.process.pid))
        time.sleep(PAUSE_S)
    return most


def attack(directory: Path, seconds: float) -> tuple[int, int, int]:
    """Return the memory before the attack, during it, and after a restart with its chunks still in the rows."""
    data, sent = silence(), 0

    def windows(session: str) -> int:
        return int(api.page(session, count=1)["inference"].get("page", {}).get("total", 0))

    def send() -> bool:
        nonlocal sent
        assert api.put(hostile, sent, data).status_code == 200
        sent += 1
        return sent >= CHUNKS and windows(hostile) > 0

    with ServiceProcess(directory / "data") as service, Api(service) as api:
        # A usual chunk starts the project's worker and loads the model.
        usual, hostile = api.create(content_type=FLAC), api.create(content_type=FLAC)
        api.send(usual, encoded(noise(2 * RATE), RATE, "FLAC"))
        before = most_memory(service, seconds, lambda: windows(usual) > 0)
        during = most_memory(service, seconds, send)
        analysed = windows(hostile)
        service.kill()
        service.start()
        after = most_memory(service, seconds, lambda: windows(hostile) > analysed)
    return before, during, after
