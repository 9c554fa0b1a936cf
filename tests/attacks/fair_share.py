"""A project that sends as much as it can beside one that sends little: `python -m tests.attacks.fair_share`.

The quiet project streams live and sends a job at intervals. The loud one uploads 32 streams of noise at full speed;
with `--times`, it does instead the same as the quiet one so many times over, and with `--sockets` it floods so many
live sockets with tiny chunks. A separate process sends the requests of each. Printed are p50 and p95 in milliseconds of
the quiet project's chunks (until acknowledged), windows (from the acknowledgement until read) and jobs (until
completed): alone, beside a process that only computes, beside the loud project, and the ratio of the last two p95s.
"""

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import audio
from benchmarks.client import LoadClient, LoadError
from benchmarks.measures import percentile
from benchmarks.plans import Target
from benchmarks.sockets import SocketClient, message
from benchmarks.wire import HttpConnection, request
from tests.process import KEY, ServiceProcess

TIMES: Final = 64
#: Streams at full speed.
STREAMS: Final = 32
#: More than one of them sends in a measurement.
MOST_CHUNKS: Final = 4_000
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


async def _send(port: int, key: str, times: int, seconds: float) -> None:
    await Sender(port, key, times, JOB_PAUSE / times).send(seconds)


async def _upload(port: int, key: str, streams: int, seconds: float) -> None:
    """Upload streams at full speed."""
    target, end = Target(port, (), key=key), time.perf_counter() + seconds

    async def one(number: int) -> None:
        client = await LoadClient.connect(target)
        await client.create("stream")
        for upload in client.uploads(audio.chunks(number), MOST_CHUNKS):
            if time.perf_counter() > end:
                return
            await client.ask(*upload)

    await asyncio.gather(*(one(number) for number in range(streams)))


async def _flood(port: int, key: str, sockets: int, seconds: float) -> None:
    """Flood live sockets with tiny chunks."""
    target, end = Target(port, (), key=key), time.perf_counter() + seconds
    chunks = [message(bytes(TINY))] * TOGETHER

    async def one() -> None:
        client = await LoadClient.connect(target)
        await client.create("stream")
        socket = SocketClient.join(client)
        while time.perf_counter() < end:
            await socket.ask(*chunks)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(one() for _ in range(sockets)))


def _compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _run(attack: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
    """Run at low priority in a separate process, because a remote load would take no CPU from the service."""
    os.nice(19)
    asyncio.run(attack(*arguments))


@contextmanager
def beside(work: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Do work in another process during the body."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    try:
        yield
        # On a slow machine the backlog of a load may last for minutes; nobody waits for it.
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


def attacked(
    service: ServiceProcess, seconds: float, *, times: int = 0, sockets: int = 0, streams: int = 0
) -> Latencies:
    """Measure the quiet project beside a loud one that sends `times` as much, floods `sockets` or uploads `streams`."""
    attack = _flood if sockets else _send if times else _upload
    key = service.project(f"loud {time.monotonic_ns()}")
    with beside(_run, attack, service.port, key, sockets or times or streams, seconds + 2 * WARM_SECONDS):
        time.sleep(WARM_SECONDS)
        return measured(service.port, KEY, seconds)


def main() -> None:
    """Attack a separate service, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often, each time on a new service")
    parser.add_argument("--streams", type=int, default=STREAMS, help="how many streams the loud project uploads")
    parser.add_argument("--times", type=int, default=0, help="send so many times as much as the quiet project instead")
    parser.add_argument("--sockets", type=int, default=0, help="flood so many live sockets instead")
    parser.add_argument("--model", help="by default the service's own")
    arguments = parser.parse_args()
    settings = {} if arguments.model is None else {"model": arguments.model}
    load = {name: getattr(arguments, name) for name in ("streams", "times", "sockets")}
    found: tuple[Latencies, ...] = tuple(defaultdict(list) for _ in range(3))
    for _ in range(arguments.rounds):
        with (
            tempfile.TemporaryDirectory() as directory,
            ServiceProcess(Path(directory) / "data", **settings) as service,
        ):
            alone = measured(service.port, KEY, arguments.seconds)
            with beside(_compute, arguments.seconds + WARM_SECONDS):
                busy = measured(service.port, KEY, arguments.seconds)
            loud = attacked(service, arguments.seconds, **load)
            for latencies, more in zip(found, (alone, busy, loud), strict=True):
                for kind, some in more.items():
                    latencies[kind] += some
    print("what     alone p50    p95    busy p50    p95    loud p50    p95    p95 loud / busy")
    for kind in found[0]:
        figures = "  ".join(f"{percentile(one[kind], 0.5):10.1f} {percentile(one[kind], 0.95):6.1f}" for one in found)
        ratio = percentile(found[2][kind], 0.95) / percentile(found[1][kind], 0.95)
        print(f"{kind:8}{figures} {ratio:18.2f}   ({', '.join(str(len(one[kind])) for one in found)})")


if __name__ == "__main__":
    main()
