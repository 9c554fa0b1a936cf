"""A project that sends 64 times as much as another must not starve it: a short attack."""

from pathlib import Path

import pytest

from benchmarks.measures import percentile
from tests.attacks.fair_share import TIMES, Latencies, attack
from tests.lengths import length
from tests.process import ServiceProcess

#: Jobs are sent every two seconds, and the first one does not count.
SECONDS = length("ATTACK_SECONDS", 6)

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300 + 5 * SECONDS)]

#: Milliseconds within which the quiet project is served beside the loud one, on a busy machine. Without turns it would
#: wait seconds for the loud project's backlog. A machine that is busier for a moment is measured again.
SERVED_MS = {"chunk": 250, "window": 500, "job": 5000}
TRIES = 3
#: A queue that these sockets fill at once.
QUEUE_BYTES = 4 << 20
SOCKETS = 64


def test_busy_project_does_not_starve_quiet_one(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data", model="sed-mini") as service:
        assert_served(service)


def test_flooded_sockets_leave_room_in_the_log_queue(tmp_path: Path) -> None:
    """Tiny chunks take room beyond their bytes; a refused request of the quiet project is an error."""
    with ServiceProcess(tmp_path / "data", model="sed-mini", queue_bytes=str(QUEUE_BYTES)) as service:
        assert_served(service, sockets=SOCKETS)


def assert_served(service: ServiceProcess, sockets: int = 0) -> None:
    slow: list[tuple[Latencies, Latencies]] = []
    while len(slow) < TRIES:
        alone, _, beside = attack(service, SECONDS, times=TIMES, sockets=sockets)
        # Whether the first message still falls into the warm-up depends on its time.
        complete = all(beside[kind] and abs(len(beside[kind]) - len(alone[kind])) <= 1 for kind in SERVED_MS)
        if complete and all(percentile(beside[kind], 0.5) < most for kind, most in SERVED_MS.items()):
            return
        slow.append((alone, beside))
    pytest.fail(str(slow))
