"""Fifteen chunks of FLAC silence, each with the maximum frames of a chunk: `python -m tests.attacks.silence`.

They go to one stream session, beside live streams; then the service is killed and restarted with the rows still there.
Printed are the memory growth of the process and its decoders, and the 99th percentile of the milliseconds from a live
chunk's acknowledgement to its window: before, during and after the restart.
"""

import argparse
import base64
import io
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx2
import msgspec
import numpy as np
import soundfile

from benchmarks.measures import percentile
from benchmarks.procfs import descendants, proportional_bytes, resident_bytes
from streams.audio.decode import MAX_CHUNK_FRAMES
from tests.audio import RATE, noise
from tests.process import ServiceProcess

CHUNKS: Final = 15
RAW: Final = f"audio/x-raw; rate={RATE}; format=f32"
#: Hop of the session windows, and the length that completes the first: half a second of audio makes a window.
CHUNK_S: Final = 0.5


class Stage(msgspec.Struct):
    """Measurements of one stage: maximum bytes of the process and of its children; milliseconds of live windows."""

    process: int
    children: int
    p99_ms: float


def silence(frames: int = MAX_CHUNK_FRAMES) -> bytes:
    """Return silence as a FLAC file: about 100 KB for 2,097 seconds."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, 1, format="FLAC", subtype="PCM_16", compression_level=1.0) as out:
        for at in range(0, frames, RATE):
            out.write(np.zeros(min(RATE, frames - at), np.int16))
    return file.getvalue()


class Client:
    def __init__(self, service: ServiceProcess, content_type: str) -> None:
        self._http = httpx2.Client(base_url=service.url, timeout=60)
        opened = {"content_type": content_type, "type": "stream"}
        answer = self._http.post("/audio_sessions/", json=opened, headers={"X-Api-Key": service.key})
        self.path = f"/audio_sessions/{answer.raise_for_status().json()['session_id']}"
        self._sent = 0

    def close(self) -> None:
        self._http.close()

    def upload(self, data: bytes) -> None:
        body = {"data": base64.b64encode(data).decode()}
        self._http.put(f"{self.path}/chunks/{self._sent}", json=body).raise_for_status()
        self._sent += 1

    def windows(self, offset: int) -> int:
        """Wait until there is a window at an offset; return the number of windows."""
        answer = self._http.get(f"{self.path}/status", params={"offset": offset, "count": 1}).raise_for_status().json()
        return int(answer["inference"].get("page", {}).get("total", 0))

    def live(self, seconds: float, seed: int) -> list[float]:
        """Stream for some seconds; return the milliseconds from each acknowledgement to the window it completes."""
        data, latencies = noise(int(CHUNK_S * RATE), seed).tobytes(), []
        for _ in range(2):
            self.upload(data)
        begin, number = time.perf_counter() + 0.5 * seed / 8, 1
        while time.perf_counter() < begin + seconds:
            time.sleep(max(0.0, begin + number * CHUNK_S - time.perf_counter()))
            self.upload(data)
            acknowledged = time.perf_counter()
            self.windows(number)
            latencies.append(1000 * (time.perf_counter() - acknowledged))
            number += 1
        return latencies


def observe(service: ServiceProcess, seconds: float, streams: int) -> Stage:
    """Stream live for some seconds while measuring memory."""
    assert service.process is not None
    clients = [Client(service, RAW) for _ in range(streams)]
    with ThreadPoolExecutor(streams) as threads:
        streaming = [threads.submit(client.live, seconds, seed) for seed, client in enumerate(clients)]
        process = children = 0
        while not all(one.done() for one in streaming):
            process = max(process, resident_bytes(service.process.pid))
            children = max(children, _resident(descendants(service.process.pid) - {service.process.pid}))
            time.sleep(0.05)
        for client in clients:
            client.close()
        latencies = [latency for one in streaming for latency in one.result()]
    return Stage(process, children, percentile(latencies, 0.99))


def _resident(processes: set[int]) -> int:
    total = 0
    for process in processes:
        try:
            # They are forked from one process, and share most of their memory.
            total += proportional_bytes(process)
        except OSError:
            continue  # the process has ended
    return total


def attack(directory: Path, seconds: float, streams: int, chunks: int = CHUNKS) -> tuple[Stage, Stage, Stage]:
    """Return measurements before the attack, during it, and after a restart with its chunks still in the rows."""
    service = ServiceProcess(directory / "data").start()
    try:
        before = observe(service, seconds, streams)
        hostile = Client(service, "audio/flac")
        data = silence()
        for _ in range(chunks):
            hostile.upload(data)
        during = observe(service, seconds, streams)
        assert 0 < hostile.windows(0) < chunks * MAX_CHUNK_FRAMES / RATE, "the attack is over, or never was"
        hostile.close()
        service.kill()
        service.start()
        return before, during, observe(service, seconds, streams)
    finally:
        service.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--streams", type=int, default=32)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        stages = attack(Path(directory), options.seconds, options.streams)
    for name, stage in zip(("before", "during", "after a restart"), stages, strict=True):
        figures = f"{stage.process / 1e6:.0f} MB, its children {stage.children / 1e6:.0f} MB"
        print(f"{name}: {figures}, p99 of live windows {stage.p99_ms:.0f} ms")


if __name__ == "__main__":
    main()
