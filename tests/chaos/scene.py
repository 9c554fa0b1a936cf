"""Brokers and nodes as in `tests.fencing`, with small disks, a spare node and, if it can be had, the version before."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.disks import Disk, mounted
from tests.fencing import scene as fencing
from tests.fencing.scene import Scene
from tests.process import ServiceProcess

#: A broker's disk keeps all audio of a run, a node's its tables.
BROKER_MB = 3000
NODE_MB = 400


@dataclass
class ChaosScene(Scene):
    #: The file of the control-plane database.
    database: Path
    #: The disks of the last broker and of the last node, None without the right to mount them.
    broker_disk: Disk | None
    node_disk: Disk | None
    #: A node that runs only while others join.
    spare: ServiceProcess
    #: The source tree of an earlier version, None if there is none that may run beside this one.
    earlier: Path | None


@contextmanager
def scene(directory: Path, nodes: int, brokers: int, earlier: Path | None) -> Iterator[ChaosScene]:
    """Yield a running scene, and stop it afterwards; the files stay in the directory, except those of small disks."""
    with ExitStack() as stack:
        # A directory with fewer belongs to a smaller cluster.
        for number in range(1, brokers):
            (directory / "kafka" / f"node-{number}").mkdir(parents=True)
        broker_disk = stack.enter_context(mounted(directory / "kafka" / f"node-{brokers}", BROKER_MB))
        node_disk = stack.enter_context(mounted(directory / f"node-{nodes - 1}", NODE_MB))
        made = stack.enter_context(fencing.scene(directory, nodes, brokers, partitions=nodes + 1))
        spare = ServiceProcess(directory / "spare")
        stack.callback(spare.stop)
        own = {name: spare.environment[name] for name in ("EARSHOT_PORT", "EARSHOT_DATA")}
        broker = {"EARSHOT_BROKER": f"kafka://{made.cluster.bootstrap}"}
        spare.environment = {**made.processes[0].environment, **own, **broker}
        yield ChaosScene(made.cluster, made.nodes, directory / "control.db", broker_disk, node_disk, spare, earlier)
