"""Live streams in real time, which measure the effect of an attack on well-behaved clients."""

import asyncio
import time

from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream

STREAMS = 32
PERIOD = 0.5


class Bystanders:
    """Clients that upload a chunk every half second and time its acknowledgement."""

    def __init__(self, client: Client, streams: list[Stream]) -> None:
        self._client = client
        self._streams = streams

    async def measure(self, seconds: float) -> list[float]:
        """Stream for some seconds; return each chunk's seconds to acknowledgement, sorted."""
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
        return sorted(taken)


async def bystanders(client: Client, count: int = STREAMS) -> Bystanders:
    return Bystanders(client, [await client.open() for _ in range(count)])


def resident_mb(service: ServiceProcess) -> float:
    """Return the resident memory of the service's main process in MB."""
    assert service.process is not None
    with open(f"/proc/{service.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def quantile(taken: list[float], share: float) -> float:
    """Return a quantile of sorted seconds, in milliseconds."""
    return 1000 * taken[min(len(taken) - 1, int(share * len(taken)))]
