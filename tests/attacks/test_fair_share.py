"""A project that sends 64 times as much as another must not starve it: a short attack."""

from pathlib import Path

import pytest

from benchmarks.measures import percentile
from tests.attacks.fair_share import TIMES, Latencies, attacked, measured
from tests.lengths import length
from tests.process import KEY, ServiceProcess

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


#: What the loud project does, and the settings of the service. Tiny chunks take room in the log's queue beyond their
#: bytes; a refused request of the quiet project is an error.
LOADS = {
    "64 times as much": ({"times": TIMES}, {}),
    "sockets with tiny chunks": ({"sockets": SOCKETS}, {"queue_bytes": str(QUEUE_BYTES)}),
}


@pytest.mark.parametrize(("load", "settings"), LOADS.values(), ids=LOADS)
def test_busy_project_does_not_starve_quiet_one(tmp_path: Path, load: dict[str, int], settings: dict[str, str]) -> None:
    with ServiceProcess(tmp_path / "data", model="sed-mini", **settings) as service:
        alone = measured(service.port, KEY, SECONDS)
        slow: list[Latencies] = []
        while len(slow) < TRIES:
            beside = attacked(service, SECONDS, **load)
            # Whether the first message still falls into the warm-up depends on its time.
            complete = all(beside[kind] and abs(len(beside[kind]) - len(alone[kind])) <= 1 for kind in SERVED_MS)
            if complete and all(percentile(beside[kind], 0.5) < most for kind, most in SERVED_MS.items()):
                return
            slow.append(beside)
    pytest.fail(f"{alone}, {slow}")
