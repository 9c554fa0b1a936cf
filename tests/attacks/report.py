"""One attack on a service: its effect on the bystanders and on memory."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec

from benchmarks.measures import percentile
from benchmarks.procfs import resident_bytes
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream

#: Between two chunks of a bystander.
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


class AttackReport(msgspec.Struct, frozen=True):
    """Memory in bytes, the 99th percentile of the bystanders' milliseconds, and the attacker's answers."""

    before: int
    highest: int
    alone: float
    beside: float
    answers: dict[str, int]


@contextlib.contextmanager
def attacking(name: str, service: ServiceProcess, session: str) -> Iterator[dict[str, int]]:
    """Attack during the body; the attacker's answer counts are filled in afterwards."""
    command = [sys.executable, "-m", "tests.attacks.attackers", name, "127.0.0.1", str(service.port), session]
    answers: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        try:
            # Until then, nothing is attacked, and the signal would end it without a word.
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == b"begun\n"
            yield answers
        finally:
            attacker.terminate()
            try:
                said, _ = attacker.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                attacker.kill()
                raise
            answers.update(json.loads(said))


async def attacked(name: str, service: ServiceProcess, seconds: float, streams: int) -> AttackReport:
    """Measure the bystanders alone, then during an attack."""
    settle = min(1.0, seconds / 2)
    assert service.process is not None
    pid = service.process.pid
    async with Client(service) as client:
        others = Bystanders(client, [await client.open() for _ in range(streams)])
        victim = await client.open()
        await others.measure(2 * settle)
        before, alone = resident_bytes(pid), await others.measure(seconds / 2)
        # Outside the bystanders' loop, whose clock must not wait for it.
        with attacking(name, service, victim.session) as answers:
            await asyncio.sleep(settle)
            beside, highest = await _watched(others, pid, seconds)
    return AttackReport(before, highest, 1000 * percentile(alone, 0.99), 1000 * percentile(beside, 0.99), answers)


async def _watched(others: Bystanders, pid: int, seconds: float) -> tuple[list[float], int]:
    measuring, highest = asyncio.create_task(others.measure(seconds)), 0
    while not measuring.done():
        highest = max(highest, resident_bytes(pid))
        await asyncio.sleep(0.2)
    return await measuring, highest
