"""Nodes of one service on one Kafka, for tests that pause, move or restart them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

from tests.kafka.broker import kafka_broker
from tests.kafka_launcher.launcher import KafkaCluster
from tests.lengths import SESSION_SECONDS
from tests.process import ServiceProcess
from tests.waiting import wait_for

PARTITIONS = 4

CLOCK = Path(__file__).parent / "clock"

Settings = Mapping[str, str | int | float]
Pair = tuple[ServiceProcess, ServiceProcess]


@contextmanager
def service_nodes(
    directory: Path, *each: Settings, cluster: KafkaCluster | None = None, **shared: str | int
) -> Iterator[list[ServiceProcess]]:
    """Yield an unstarted node for each of the settings in `each`, combined with `shared`.

    They are on `cluster`, or on the Kafka that all tests share.
    """
    with ExitStack() as stack:
        log = {"broker": f"kafka://{cluster.bootstrap}"} if cluster else stack.enter_context(kafka_broker()).settings
        common = {
            **log,
            "partitions": PARTITIONS,
            "kafka_session_seconds": SESSION_SECONDS,
            "database_url": f"sqlite:///{directory / 'control.db'}",
            "model": "sed-mini",
            "workers": 1,
            "poll_seconds": 1,
            **shared,
        }
        nodes = [ServiceProcess(directory / f"node-{n}", **{**common, **own}) for n, own in enumerate(each)]
        for node in nodes:
            stack.callback(node.stop)
        yield nodes


def start(*nodes: ServiceProcess) -> None:
    """Start those that do not run, at the same time, and wait until all serve requests.

    The first one makes the database before the others start: on SQLite they would wait five seconds for it.
    """
    if not Path(nodes[0].environment["EARSHOT_DATABASE_URL"].removeprefix("sqlite:///")).exists():
        nodes[0].start()
    for node in nodes:
        if not node.running:
            node.start(wait=0)
    for node in nodes:
        node.wait_ready()


def start_again(nodes: Sequence[ServiceProcess]) -> None:
    """Start stopped nodes, and wait until each node serves partitions, and each partition has one node."""
    start(*nodes)

    def settled() -> bool:
        told = nodes[0].operate("GET", "/nodes")
        served = [
            [partition["number"] for partition in node["node"]["partitions"] if partition["state"] == "serving"]
            for node in told["nodes"]
            if node["node"]
        ]
        return len(served) == len(nodes) and all(served) and sorted(chain(*served)) == list(range(told["partitions"]))

    wait_for(settled, 120)


def ahead(seconds: float, step: float = 0) -> dict[str, str]:
    """Return the environment of a process whose clock runs ahead by `seconds`.

    With a `step` of seconds it is right again for as long, in turn.
    """
    return {
        "PYTHONPATH": str(CLOCK),
        "EARSHOT_TEST_CLOCK_AHEAD": str(seconds),
        "EARSHOT_TEST_CLOCK_STEP": str(step),
    }
