"""`python -m tests.kafka_launcher`: a real Kafka in the foreground, and nodes of Earshot on it, for trials."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from tests.kafka_launcher.jars import LauncherError, cache_directory
from tests.kafka_launcher.launcher import KafkaCluster
from tests.kafka_launcher.services import Services

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
#: Seconds until a killed process starts again: longer than the session of a node, so that others take over.
AWAY_SECONDS: Final = 20.0


def kafka(
    nodes: Annotated[int, typer.Option(min=1, max=9, help="Brokers; three replicate and survive the loss of one.")] = 1,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the data, which survives a restart; by default data/kafka, with N brokers data/kafka-N, "
            "with nodes of Earshot data/cluster-N."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=1024, max=65000, help="Port of the first broker; each broker takes two.")
    ] = 19092,
    services: Annotated[
        int, typer.Option(min=0, max=9, help="Nodes of Earshot on it; any process may be killed, and comes back.")
    ] = 0,
) -> None:
    """Run Apache Kafka from Maven Central's jars (needs java, and mvn once), until Ctrl-C."""
    # The files contain the audio of sessions, so only the owner may read them, as in the data directory.
    os.umask(0o077)
    directory = data or Path("data", f"cluster-{nodes}" if services else "kafka" if nodes == 1 else f"kafka-{nodes}")
    for number in STOPPING:
        signal.signal(number, _interrupt)
    if not cache_directory().exists():
        typer.echo(f"fetching Kafka (54 MB, once) into {cache_directory()}")
    try:
        with KafkaCluster(directory, nodes, port) as cluster, Services(directory, services, cluster.bootstrap) as there:
            typer.echo(f"Kafka is ready at {cluster.bootstrap}, data in {directory.absolute()}; Ctrl-C stops it")
            if services:
                _run(cluster, there)
            typer.echo(f"EARSHOT_BROKER=kafka://{cluster.bootstrap} make run")
            while True:
                for failure in cluster.watch(1.0).values():
                    typer.echo(f"{failure}\nThe others go on; start again to have it back.", err=True)
    except KeyboardInterrupt:
        typer.echo("Everything is stopped" if services else "Kafka is stopped")
    except LauncherError as error:
        typer.echo(f"kafka: {error}", err=True)
        raise typer.Exit(1) from None


def _run(cluster: KafkaCluster, services: Services) -> None:
    """Show what runs, and start again what ends, after a while."""
    for number, process in cluster.processes.items():
        typer.echo(f"broker {number}: process {process}")
    for node in services.nodes:
        typer.echo(f"node {node.number}: process {node.process}, {node.url}, log {node.log}")
    url, keys = services.nodes[0].url, services.directory
    typer.echo(
        f"Kill any of them: it starts again after {AWAY_SECONDS:g} s. Meanwhile, in another terminal:\n"
        f"  EARSHOT_ADMIN_KEY_FILE={keys / 'admin-key'} .venv/bin/earshot cluster --url {url}\n"
        f"  .venv/bin/earshot listen infra/examples/meeting.ogg --url {url} --key-file {keys / 'project-key'}"
    )
    due: dict[str, tuple[float, Callable[[], None]]] = {}
    while True:
        for number, failure in cluster.watch(1.0).items():
            typer.echo(str(failure).splitlines()[0], err=True)
            due[f"broker {number}"] = time.monotonic() + AWAY_SECONDS, partial(cluster.restart, number)
        for node in services.nodes:
            if node.process is None and (name := f"node {node.number}") not in due:
                typer.echo(f"Earshot node {node.number} ended with {node.status}; its log is {node.log}", err=True)
                due[name] = time.monotonic() + AWAY_SECONDS, node.start
        for name, (at, start) in list(due.items()):
            if at < time.monotonic():
                del due[name]
                start()
                typer.echo(f"{name} starts again")


def _interrupt(number: int, frame: FrameType | None) -> None:
    # The first signal starts an orderly stop, which another one must not interrupt.
    for stopping in STOPPING:
        signal.signal(stopping, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    typer.run(kafka)
