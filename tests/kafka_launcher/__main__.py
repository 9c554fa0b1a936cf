"""`python -m tests.kafka_launcher`: a real Kafka in the foreground, for development and multi-node trials."""

import os
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from tests.kafka_launcher import launcher
from tests.kafka_launcher.jars import LauncherError, cache_directory

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


def kafka(
    nodes: Annotated[int, typer.Option(min=1, max=9, help="Nodes; three replicate and survive the loss of one.")] = 1,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the data, which survives a restart; by default data/kafka, with N nodes data/kafka-N."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=1024, max=65000, help="Port of the first node; each node takes two.")
    ] = 19092,
) -> None:
    """Run Apache Kafka from Maven Central's jars (needs java, and mvn once), until Ctrl-C."""
    # Kafka's files contain the audio of sessions, so only the owner may read them, as in the data directory.
    os.umask(0o077)
    directory = data or Path("data", "kafka" if nodes == 1 else f"kafka-{nodes}")
    for number in STOPPING:
        signal.signal(number, _interrupt)
    if not cache_directory().exists():
        typer.echo(f"fetching Kafka (54 MB, once) into {cache_directory()}")
    try:
        with launcher.KafkaCluster(directory, nodes, port) as cluster:
            typer.echo(f"Kafka is ready at {cluster.bootstrap}, data in {directory.absolute()}; Ctrl-C stops it")
            typer.echo(f"EARSHOT_BROKER=kafka://{cluster.bootstrap} make run")
            while True:
                for failure in cluster.watch(1.0):
                    typer.echo(f"{failure}\nThe others go on; start again to have it back.", err=True)
    except KeyboardInterrupt:
        typer.echo("Kafka is stopped")
    except LauncherError as error:
        typer.echo(f"kafka: {error}", err=True)
        raise typer.Exit(1) from None


def _interrupt(number: int, frame: FrameType | None) -> None:
    # The first signal starts an orderly stop, which another one must not interrupt.
    for stopping in STOPPING:
        signal.signal(stopping, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    typer.run(kafka)
