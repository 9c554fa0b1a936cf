"""Alarms of live sockets: from the message with a sound to the webhook at its receiver."""

import asyncio
import json
import time
from collections.abc import Iterator
from email.parser import BytesParser
from itertools import count
from typing import Final

from websockets.asyncio.client import connect

from benchmarks.cases.setup import Setup, Variant, running_service
from benchmarks.measures import Row, percentile, value_row
from benchmarks.plans import Target
from earshot_client import AlarmRule, Client, Destination

STREAMS: Final = 100
SECONDS: Final = 60
CHUNK_SECONDS: Final = 0.5
#: One chunk in eight is loud, all others are silent; streams take turns.
PERIOD: Final = 8
LOUD, SILENT = b"\xff\x3f\x01\xc0" * 4000, bytes(16_000)
#: Seconds until every node knows a new rule.
KNOWN_SECONDS: Final = 3.0
#: Milliseconds, p50 and p99.
BARS: Final = (80.0, 300.0)


class Receiver:
    """Answers webhooks, and notes when each came. Loop only."""

    def __init__(self) -> None:
        #: By source and sequence.
        self.came: dict[tuple[str, int], float] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                headers = BytesParser().parsebytes(head.partition(b"\r\n")[2])
                data = json.loads(await reader.readexactly(int(headers["content-length"])))["data"]
                self.came.setdefault((data["source"], data["sequence"]), time.perf_counter())
                writer.write(b"HTTP/1.1 204 X\r\ncontent-length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the delays of alarms of sockets in real time."""
    settings = {"delivery_networks": "127.0.0.1", **Variant("sed_mini", "embedded").settings}
    with running_service(**settings) as (server, _):
        delays = asyncio.run(_run(server.target(), setup.size(SECONDS, 12)))
    for share, bar in zip((0.5, 0.99), BARS, strict=True):
        value = 1000 * percentile(delays, share)
        name = f"webhooks, {STREAMS} sockets, sound in a message to webhook, p{100 * share:.0f}"
        yield value_row(name, [value], "ms", bar, {"alarms": len(delays)})


async def _run(target: Target, seconds: float) -> list[float]:
    """Return the seconds from each loud message to its webhook."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    await asyncio.to_thread(_prepare, target, url)
    await asyncio.sleep(KNOWN_SECONDS)
    sent: dict[tuple[str, int], float] = {}
    await asyncio.gather(*(_stream(target, number, seconds, sent) for number in range(STREAMS)))
    await asyncio.sleep(2.0)
    server.close()
    missing = len(sent.keys() - receiver.came.keys())
    assert not missing, f"{missing} of {len(sent)} alarms have not come"
    return [receiver.came[one] - at for one, at in sent.items()]


def _prepare(target: Target, url: str) -> None:
    with Client(f"http://127.0.0.1:{target.port}", target.key) as client:
        to = client.add_destination(Destination(name="receiver", kind="webhook", url=url)).destination.id
        client.add_alarm_rule(AlarmRule(name="loud", when="loud", level=-20, gap=0, cooldown=0, destinations=(to,)))


async def _stream(target: Target, number: int, seconds: float, sent: dict[tuple[str, int], float]) -> None:
    """Send audio in real time; note when each loud message was sent."""
    name, numbers = f"source-{number}", count()
    query = f"content_type=audio/x-raw;%20rate=16000;%20format=s16le&file_name={name}&events=none"
    loop = asyncio.get_running_loop()
    headers = {"X-Api-Key": target.key}
    url = f"ws://127.0.0.1:{target.port}/api/v1/socket?{query}"
    # Nobody reads the acknowledgements.
    async with connect(url, additional_headers=headers, max_queue=None) as socket:
        await socket.recv()
        begin = loop.time() + CHUNK_SECONDS * number / STREAMS
        for chunk in range(int(seconds / CHUNK_SECONDS)):
            await asyncio.sleep(begin + chunk * CHUNK_SECONDS - loop.time())
            is_loud = (chunk + number) % PERIOD == PERIOD // 2
            if is_loud and (sequence := next(numbers)):  # The first one warms up.
                sent[name, sequence] = time.perf_counter()
            await socket.send(LOUD if is_loud else SILENT)
        await socket.send('{"type":"end"}')
