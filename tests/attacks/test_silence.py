"""A chunk of silence may last half an hour, but takes no more memory than a second."""

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import soundfile

from benchmarks.procfs import family_bytes
from streams.audio.decode import MAX_CHUNK_FRAMES
from tests.audio import RATE, encoded, noise
from tests.contract.api import Api
from tests.lengths import length
from tests.process import ServiceProcess

pytestmark = pytest.mark.slow

GROWTH: Final = 64 * 1024 * 1024
FLAC: Final = "audio/flac"
SECONDS: Final = length("ATTACK_SECONDS", 2)
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


def most_memory(service: ServiceProcess, done: Callable[[], bool]) -> int:
    """Return the most bytes that the service's processes take for some seconds, and until something is done."""
    assert service.process is not None
    most, end = 0, time.monotonic() + SECONDS
    while not done() or time.monotonic() < end:
        most = max(most, family_bytes(service.process.pid))
        time.sleep(PAUSE_S)
    return most


def test_long_silent_chunks_do_not_grow_memory(tmp_path: Path) -> None:
    """Neither during the attack, nor after a restart with its chunks still in the rows."""
    data, sent = silence(), 0

    def windows(session: str) -> int:
        return int(api.page(session, count=1)["inference"].get("page", {}).get("total", 0))

    def send() -> bool:
        nonlocal sent
        assert api.put(hostile, sent, data).status_code == 200
        sent += 1
        return sent >= CHUNKS and windows(hostile) > 0

    with ServiceProcess(tmp_path / "data") as service, Api(service) as api:
        # A usual chunk starts the project's worker and loads the model.
        usual, hostile = api.create(content_type=FLAC), api.create(content_type=FLAC)
        api.send(usual, encoded(noise(2 * RATE), RATE, "FLAC"))
        before = most_memory(service, lambda: windows(usual) > 0)
        assert most_memory(service, send) - before <= GROWTH
        analysed = windows(hostile)
        service.kill()
        service.start()
        assert most_memory(service, lambda: windows(hostile) > analysed) - before <= GROWTH
