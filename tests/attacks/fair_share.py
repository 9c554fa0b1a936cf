"""One project sends 64 times as much as another: `python -m tests.attacks.fair_share` prints the effect on the other.

The quiet project streams live and sends a job at intervals; the loud one does the same 64 times over. A separate
process sends the requests of each. Printed are p50 and p95 in milliseconds of the quiet project's chunks (until
acknowledged), windows (from the acknowledgement until read) and jobs (until completed): alone, beside the loud project,
and the ratio of the p95s. With `--sockets`, the loud project instead floods so many live sockets with tiny chunks.
"""

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import audio
from benchmarks.client import LoadClient, LoadError
from benchmarks.measures import percentile
from benchmarks.plans import Target
from benchmarks.sockets import SocketClient, message
from benchmarks.wire import HttpConnection, request
from tests.process import KEY, ServiceProcess

TIMES: Final = 64
#: Seconds of audio in a job, and between two jobs of the quiet project.
JOB_AUDIO: Final = 2
JOB_PAUSE: Final = 2.0
#: Bytes of a chunk, and chunks sent at a time, of a flood by sockets.
TINY: Final = 128
TOGETHER: Final = 64
#: Initial seconds left out, because first requests take longer.
WARM_SECONDS: Final = 1.5

#: Milliseconds by kind.
Latencies = dict[str, list[float]]


class Sender:
    """Sends a project's load: live streams, each with a reader, and jobs."""

    def __init__(self, port: int, key: str, streams: int, job_pause: float) -> None:
        self.target = Target(port, (), key=key)
        self.streams = streams
        self.job_pause = job_pause
        self.latencies: Latencies = {"chunk": [], "window": [], "job": []}
        self.refused = 0
        self._warm_at = time.perf_counter() + WARM_SECONDS

    async def send(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        begin = time.perf_counter() + 0.2
        work = [self._stream(begin + number * audio.SECONDS / self.streams, end) for number in range(self.streams)]
        await asyncio.gather(*work, self._jobs(end))

    def _note(self, kind: str, began: float) -> None:
        if began >= self._warm_at:
            self.latencies[kind].append(1000 * (time.perf_counter() - began))

    async def _stream(self, begin: float, end: float) -> None:
        writer, reader = await LoadClient.connect(self.target), await LoadClient.connect(self.target)
        reader.session = await writer.create("stream")
        chunks = int((end - begin) / audio.SECONDS)
        acked: list[float] = []
        following = asyncio.create_task(self._follow(reader, chunks - 1, acked))
        for number, upload in enumerate(writer.uploads(audio.chunks(0), chunks)):
            await asyncio.sleep(max(0.0, begin + number * audio.SECONDS - time.perf_counter()))
            began = time.perf_counter()
            await writer.ask(*upload)
            acked.append(time.perf_counter())
            self._note("chunk", began)
        await following
        writer.connection.close()
        reader.connection.close()

    async def _follow(self, reader: LoadClient, windows: int, acked: list[float]) -> None:
        window, token = 0, ""
        while window < windows:
            count, token = await reader.follow(token)
            for number in range(window, window + count):
                # A window is complete with the chunk after its first one; its answer may overtake the acknowledgement
                # of that chunk.
                self._note("window", acked[number + 1] if number + 1 < len(acked) else time.perf_counter())
            window += count

    async def _jobs(self, end: float) -> None:
        tasks = set()
        while time.perf_counter() + self.job_pause < end:
            tasks.add(asyncio.create_task(self._job()))
            await asyncio.sleep(self.job_pause)
        await asyncio.gather(*tasks)

    async def _job(self) -> None:
        began = time.perf_counter()
        connection = await HttpConnection.open(self.target.port)
        key = f"X-Api-Key: {self.target.key}\r\n"
        status, answer = await connection.ask(request("POST", "/api/v1/analyze", len(_JOB), key), _JOB)
        if status == 503:
            self.refused += 1
            return
        if status != 200:
            raise LoadError(f"{status} {answer[:200]!r}")
        path = f"/api/v1/jobs/{json.loads(answer)['job_id']}"
        while b'"completed"' not in answer:
            await asyncio.sleep(0.02)
            _, answer = await connection.ask(request("GET", path, headers=key))
        self._note("job", began)
        connection.close()


def _job_body() -> bytes:
    recording = b"".join(audio.chunk(1, number) for number in range(int(JOB_AUDIO / audio.SECONDS)))
    fields = {
        "samplerate": audio.RATE,
        "audio": base64.b64encode(recording).decode(),
        "content_type": audio.CONTENT_TYPE,
        "options": {"sound_event_detection": True},
    }
    return json.dumps(fields).encode()


_JOB: Final = _job_body()


def _loud(port: int, key: str, streams: int, job_pause: float, seconds: float) -> None:
    """Run at low priority in a separate process, because a remote load would take no CPU from the service."""
    os.nice(19)
    asyncio.run(Sender(port, key, streams, job_pause).send(seconds))


def _flood(port: int, key: str, sockets: int, seconds: float) -> None:
    os.nice(19)
    asyncio.run(_flood_sockets(Target(port, (), key=key), sockets, time.perf_counter() + seconds))


async def _flood_sockets(target: Target, sockets: int, end: float) -> None:
    chunks = [message(bytes(TINY))] * TOGETHER

    async def one() -> None:
        client = await LoadClient.connect(target)
        await client.create("stream")
        socket = await SocketClient.join(client)
        while time.perf_counter() < end:
            await socket.ask(*chunks)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(one() for _ in range(sockets)))


@contextmanager
def loud(attack: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Let a project send load in another process during the body."""
    process = multiprocessing.get_context("spawn").Process(target=attack, args=arguments)
    process.start()
    try:
        yield
        # On a slow machine its backlog may last for minutes; nobody waits for it.
        if process.exitcode:
            raise RuntimeError(f"the loud project ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def measured(port: int, key: str, seconds: float) -> Latencies:
    """Measure the quiet project for some seconds."""
    sender = Sender(port, key, 1, JOB_PAUSE)
    asyncio.run(sender.send(seconds))
    if sender.refused:
        raise RuntimeError(f"{sender.refused} jobs of the quiet project were refused")
    return sender.latencies


def attack(
    service: ServiceProcess, seconds: float, times: int = TIMES, sockets: int = 0
) -> tuple[Latencies, Latencies]:
    """Return the quiet project's measurements alone, and beside a project that sends `times` as much.

    If `sockets` is given, the other project floods these instead.
    """
    key = service.project(f"loud {time.monotonic_ns()}")
    alone = measured(service.port, KEY, seconds)
    port, long = service.port, seconds + 2 * WARM_SECONDS
    with loud(_flood, port, key, sockets, long) if sockets else loud(_loud, port, key, times, JOB_PAUSE / times, long):
        time.sleep(WARM_SECONDS)
        beside = measured(service.port, KEY, seconds)
    return alone, beside


def main() -> None:
    """Attack a separate service, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60, help="length of each of the two measurements")
    parser.add_argument("--times", type=int, default=TIMES, help="how much more the loud project sends")
    parser.add_argument("--sockets", type=int, default=0, help="flood so many live sockets instead")
    parser.add_argument("--model", default="yamnet")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        ServiceProcess(Path(directory) / "data", model=arguments.model) as service,
    ):
        alone, beside = attack(service, arguments.seconds, arguments.times, arguments.sockets)
    print("what     alone p50    p95   beside p50    p95   p95 beside / alone")
    for kind in alone:
        (first, last), (first_beside, last_beside) = (
            (percentile(one[kind], 0.5), percentile(one[kind], 0.95)) for one in (alone, beside)
        )
        print(
            f"{kind:8} {first:9.1f} {last:6.1f} {first_beside:12.1f} {last_beside:6.1f} {last_beside / last:20.2f}"
            f"   ({len(alone[kind])}, {len(beside[kind])})"
        )


if __name__ == "__main__":
    main()
