"""One attack on a service: its effect on the bystanders and on memory."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from tests.attacks.bystanders import Bystanders, bystanders, quantile, resident_mb
from tests.process import ServiceProcess
from tests.recovery.load import Client


class AttackReport(msgspec.Struct, frozen=True):
    """Memory in MB, times in milliseconds."""

    name: str
    before: float
    highest: float
    after: float
    alone: tuple[float, float]
    beside: tuple[float, float]
    answers: dict[str, int]

    def line(self) -> str:
        answers = ", ".join(f"{count} x {answer}" for answer, count in sorted(self.answers.items())) or "none"
        return (
            f"| {self.name} | {self.before:.0f}, {self.highest:.0f}, {self.after:.0f} "
            f"| {self.alone[0]:.1f}, {self.alone[1]:.1f} | {self.beside[0]:.1f}, {self.beside[1]:.1f} | {answers} |"
        )


HEADER = (
    "| attack | memory: before, highest, after (MB) | alone: p50, p99 (ms) | beside: p50, p99 | answers |\n"
    "| --- | --- | --- | --- | --- |"
)


@contextlib.contextmanager
def attacking(name: str, service: ServiceProcess, session: str) -> Iterator[dict[str, int]]:
    """Attack during the body; the attacker's answer counts are filled in afterwards."""
    command = [sys.executable, "-m", "tests.attacks.attackers", name, "127.0.0.1", str(service.port), session]
    answers: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        try:
            yield answers
        finally:
            attacker.terminate()
            try:
                said, _ = attacker.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                attacker.kill()
                raise
            answers.update(json.loads(said))


async def attacked(name: str, service: ServiceProcess, seconds: float, streams: int = 32) -> AttackReport:
    """Measure the bystanders alone, then during an attack."""
    settle = min(1.0, seconds / 2)
    async with Client(service) as client:
        others, victim = await bystanders(client, streams), await client.open()
        await others.measure(2 * settle)
        before, alone = resident_mb(service), await others.measure(seconds / 2)
        # Outside the bystanders' loop, whose clock must not wait for it.
        with attacking(name, service, victim.session) as answers:
            await asyncio.sleep(settle)
            beside, highest = await _watched(others, service, seconds)
        await asyncio.sleep(settle)
        after = resident_mb(service)
    quantiles = [(quantile(taken, 0.5), quantile(taken, 0.99)) for taken in (alone, beside)]
    return AttackReport(name, before, highest, after, quantiles[0], quantiles[1], answers)


async def _watched(others: Bystanders, service: ServiceProcess, seconds: float) -> tuple[list[float], float]:
    measuring, highest = asyncio.create_task(others.measure(seconds)), 0.0
    while not measuring.done():
        highest = max(highest, resident_mb(service))
        await asyncio.sleep(0.2)
    return await measuring, highest
