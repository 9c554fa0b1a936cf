"""Short attacks without a key: bystanders go on, and memory does not grow with unauthenticated input."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.attacks.attackers import ATTACKS
from tests.attacks.report import AttackReport, attacked
from tests.lengths import length
from tests.process import ServiceProcess

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SECONDS = length("ATTACK_SECONDS", 1)
GROWTH = 64 * 1024 * 1024
#: Not the latency of a quiet machine, but proof that no client is left waiting. A busy machine adds its own delay, and
#: may be busier for a moment: then it is measured again.
SLOWEST_MS = 1000.0
BUSY = 10
TRIES = 3


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("attacked") / "data", upload_idle_seconds=2) as process:
        # Before `before` is measured, buffers grow to the size that many connections need.
        asyncio.run(attacked("idle", process, SECONDS, streams=8))
        yield process


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_does_not_affect_other_clients(name: str, service: ServiceProcess) -> None:
    slow: list[AttackReport] = []
    while len(slow) < TRIES:
        # An idle connection is closed after two seconds.
        report = asyncio.run(attacked(name, service, max(SECONDS, 3 if name == "idle" else 1), streams=8))
        # The first try's connections may still have places that the attack needs.
        assert slow or report.answers.get(ATTACKS[name][2]), report
        assert report.highest - report.before < GROWTH, report
        assert service.running
        if report.beside < SLOWEST_MS + BUSY * report.alone:
            return
        slow.append(report)
    pytest.fail(str(slow))
