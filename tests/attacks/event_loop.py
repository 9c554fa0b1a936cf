"""Work that one customer makes the event loop do: `python -m tests.attacks.event_loop` prints its effect on the others.

Another process asks `/healthz` alone, and beside 40 sockets of pings, 40 sockets of two-byte messages, a broken JSON
body of 40 MiB in a loop, one of backslashes, chunks of broken base64, sockets that are only opened, invalid creations,
forms that look everywhere like the end of a part, long lists, `/metrics`, and 50 readers of one large result, with and
without a key. Printed are p50 and the worst in milliseconds. The loads have nice 19.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.client import LoadClient
from benchmarks.measures import percentile
from benchmarks.plans import Target
from benchmarks.wire import HttpConnection, request
from tests.attacks.attackers import head, upgrade
from tests.process import KEY, ServiceProcess, ask

SOCKETS: Final = 40
READERS: Final = 50
LISTED: Final = 200
BODY_BYTES: Final = 40 << 20
#: Of the recording whose result is read: some 1.4 MB.
RESULT_SECONDS: Final = 9600
PAUSE: Final = 0.01
#: Where the other process connects from: clients without a key are told apart by their address.
OTHER: Final = "127.0.0.2"

Load = Callable[[int, str], Coroutine[Any, Any, None]]


async def _frames(port: int, frames: bytes) -> None:
    client = await LoadClient.connect(Target(port, (), key=KEY))
    await client.create("stream")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(upgrade(client.session))
    await reader.readuntil(b"\r\n\r\n")
    reading = asyncio.create_task(_read_all(reader))
    with contextlib.suppress(OSError):
        while True:
            writer.write(frames)
            await writer.drain()
            await asyncio.sleep(0)
    await reading


async def _read_all(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(1 << 16):
            pass


async def pings(port: int, job: str) -> None:
    await asyncio.gather(*(_frames(port, b"\x89\x80\0\0\0\0" * 4096) for _ in range(SOCKETS)))


async def messages(port: int, job: str) -> None:
    await asyncio.gather(*(_frames(port, b"\x82\x82\0\0\0\0xx" * 1024) for _ in range(SOCKETS)))


async def _bodies(port: int, path: str, method: str, body: bytes, lanes: int = 1) -> None:
    async def lane() -> None:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                writer.write(head(f"{method} {path}", f"X-Api-Key: {KEY}", f"Content-Length: {len(body)}") + body)
                await writer.drain()
                await reader.readuntil(b"\r\n")
            writer.close()

    await asyncio.gather(*(lane() for _ in range(lanes)))


async def broken_json(port: int, job: str) -> None:
    body = b'{"samplerate":16000,"options":{"sound_event_detection":true},"audio":"'
    await _bodies(port, "/api/v1/analyze", "POST", body + b"A" * (BODY_BYTES - 100) + b'\\ud800x"}')


async def backslashes(port: int, job: str) -> None:
    await _bodies(port, "/api/v1/analyze", "POST", b'{"audio":"' + b"\\" * (BODY_BYTES - 10))


async def small_values(port: int, job: str) -> None:
    await _bodies(port, "/api/v1/analyze", "POST", b'{"audio":[' + b'"",' * (BODY_BYTES // 3 - 10) + b"1")


async def broken_chunks(port: int, job: str) -> None:
    client = await LoadClient.connect(Target(port, (), key=KEY))
    await client.create("stream")
    path = f"/sense/api/v1/audio_sessions/{client.session}/chunks/0"
    await _bodies(port, path, "PUT", b'{"data":"' + b"A " * 3_600_000 + b'*"}', 4)


async def _reads(port: int, path: str, *headers: str) -> None:
    async def lane() -> None:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                writer.write(head(f"GET {path}", "Connection: close", *headers))
                await _read_all(reader)
            writer.close()

    await asyncio.gather(*(lane() for _ in range(READERS)))


async def long_lists(port: int, job: str) -> None:
    client = await LoadClient.connect(Target(port, (), key=KEY))
    body = json.dumps({"type": "stream", "content_type": "audio/wav", "metadata": {"x": "y" * 4000}}).encode()
    head_of_one = request("POST", "/audio_sessions/", len(body), f"X-Api-Key: {KEY}\r\n")
    for _ in range(LISTED):
        await client.ask(head_of_one, body)
    await _reads(port, f"/audio_sessions?count={LISTED}", f"X-Api-Key: {KEY}")


async def metrics(port: int, job: str) -> None:
    await _reads(port, "/metrics")


async def _forms(port: int, part: bytes) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="audio"; filename="a"\r\n\r\n' + part
    kind = "Content-Type: multipart/form-data; boundary=b"

    async def lane() -> None:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                writer.write(
                    head("POST /api/v1/analyze_file", f"X-Api-Key: {KEY}", kind, f"Content-Length: {len(body)}")
                )
                writer.write(body)
                await writer.drain()
                await reader.readuntil(b"\r\n")
            writer.close()

    await asyncio.gather(*(lane() for _ in range(SOCKETS)))


async def forms(port: int, job: str) -> None:
    """The file of each looks everywhere like the end of a part."""
    await _forms(port, b"\r\n--" * (BODY_BYTES // 40))


async def invalid_creations(port: int, job: str) -> None:
    tags = ",".join(f'"{number}":2' for number in range(6000))
    body = b'{"type":"stream","content_type":"audio/wav","tags_sensitivity":{%s}}' % tags.encode()
    await _bodies(port, "/audio_sessions/", "POST", body, READERS)


async def openings(port: int, job: str) -> None:
    """Sockets that are opened and closed at once."""
    client = await LoadClient.connect(Target(port, (), key=KEY))
    session = await client.create("stream")

    async def lane() -> None:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                writer.write(upgrade(session, "?mode=listen") + b"\x88\x80\0\0\0\0" * 1024)
                await _read_all(reader)
            writer.close()

    await asyncio.gather(*(lane() for _ in range(SOCKETS)))


async def readers(port: int, job: str) -> None:
    await _reads(port, f"/api/v1/jobs/{job}", f"X-Api-Key: {KEY}")


async def keyless_readers(port: int, job: str) -> None:
    await _reads(port, f"/api/v1/jobs/{job}/stream")


LOADS: Final[dict[str, Load]] = {
    load.__name__.replace("_", " "): load
    for load in (
        pings,
        messages,
        openings,
        broken_json,
        backslashes,
        small_values,
        broken_chunks,
        invalid_creations,
        forms,
        long_lists,
        metrics,
        readers,
        keyless_readers,
    )
}


def _run(load: str, port: int, job: str) -> None:
    os.nice(19)
    asyncio.run(LOADS[load](port, job))


async def _asked(port: int, seconds: float) -> list[float]:
    connection = await HttpConnection.open(port, OTHER)
    taken, end = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        await connection.ask(request("GET", "/healthz"))
        taken.append(1000 * (time.perf_counter() - began))
        await asyncio.sleep(PAUSE)
    connection.close()
    return taken


def measured(port: int, seconds: float) -> list[float]:
    """Return the milliseconds that `/healthz` takes."""
    return asyncio.run(_asked(port, seconds))


def beside(load: str, service: ServiceProcess, job: str, seconds: float) -> list[float]:
    """Return the milliseconds that `/healthz` takes while a customer sends a load."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(load, service.port, job))
    process.start()
    try:
        time.sleep(2.0)
        taken = measured(service.port, seconds)
        if process.exitcode is not None:
            raise RuntimeError(f"{load} ended with {process.exitcode}")
        return taken
    finally:
        process.kill()
        process.join()


def large_result(service: ServiceProcess) -> str:
    """Return a job with a large result."""
    noise = np.random.default_rng(1).integers(-8000, 8000, 8000 * 10, np.int16).tobytes() * (RESULT_SECONDS // 10)
    form = {"options": json.dumps({"sound_event_detection": True})}
    file = {"audio": ("noise", noise, "audio/x-raw; rate=8000; format=s16le")}
    answer = ask("POST", f"{service.url}/api/v1/analyze_file", headers={"X-Api-Key": KEY}, data=form, files=file)
    job: str = answer.json()["job_id"]
    while True:
        result = ask("GET", f"{service.url}/api/v1/jobs/{job}", headers={"X-Api-Key": KEY})
        if result.json()["status"] == "completed":
            print(f"the result has {len(result.content) / 1e6:.1f} MB")
            return job
        time.sleep(1.0)


def main() -> None:
    """Attack a separate service, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("loads", nargs="*", help=f"some of: {', '.join(LOADS)}", default=list(LOADS))
    parser.add_argument("--seconds", type=float, default=15, help="length of each measurement")
    parser.add_argument("--model", default="sed-mini")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        ServiceProcess(Path(directory) / "data", model=arguments.model) as service,
    ):
        job = large_result(service) if any("readers" in load for load in arguments.loads) else ""
        print("beside                   p50    worst (ms)")
        for load in ("nothing", *arguments.loads):
            taken = (
                measured(service.port, arguments.seconds)
                if load == "nothing"
                else beside(load, service, job, arguments.seconds)
            )
            print(f"{load:18} {percentile(taken, 0.5):9.1f} {max(taken):8.0f}", flush=True)


if __name__ == "__main__":
    main()
