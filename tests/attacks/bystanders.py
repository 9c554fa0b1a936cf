"""Live streams in real time, which measure the effect of an attack on well-behaved clients."""

import asyncio
import time

from tests.recovery.load import Client, Stream

PERIOD = 0.5


class Bystanders:
    """Clients that upload a chunk every half second and time its acknowledgement."""

    def __init__(self, client: Client, streams: list[Stream]) -> None:
        self._client = client
        self._streams = streams

    async def measure(self, seconds: float) -> list[float]:
        """Stream for some seconds; return each chunk's seconds to acknowledgement."""
        taken: list[float] = []
        end = time.monotonic() + seconds

        async def live(stream: Stream, number: int) -> None:
            due = time.monotonic() + PERIOD * number / len(self._streams)
            while due < end:
                await asyncio.sleep(due - time.monotonic())
                began = time.monotonic()
                await self._client.put(stream, number)
                taken.append(time.monotonic() - began)
                due += PERIOD

        await asyncio.gather(*(live(stream, number) for number, stream in enumerate(self._streams)))
        return taken


async def bystanders(client: Client, count: int) -> Bystanders:
    return Bystanders(client, [await client.open() for _ in range(count)])
