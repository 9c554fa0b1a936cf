"""The options of a run, and the logs that it measures."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks import processes
from benchmarks.processes import ServerProcess
from infra import models


class Setup(msgspec.Struct, frozen=True):
    pairs: int = 5
    #: Runs have a tenth of the length, to check that everything works; do not quote the figures.
    quick: bool = False
    kafka: bool = True

    def size(self, full: int, least: int = 16) -> int:
        """Return the length of a run: `full`, or a tenth of it if quick, but at least `least`."""
        return max(least, full // 10) if self.quick else full

    def logs(self) -> list[str]:
        return ["embedded", "kafka"] if self.kafka else ["embedded"]


class Log(msgspec.Struct, frozen=True):
    """A running log: the service's settings for it, and the broker's processes."""

    settings: dict[str, str] = {}
    brokers: tuple[int, ...] = ()


class Variant(msgspec.Struct, frozen=True):
    """Configuration of a row: the sound model, the log, and the partitions if chosen."""

    model: str
    log: str
    partitions: int | None = None

    def __str__(self) -> str:
        return f"{self.model}, {self.log}" + (f", {self.partitions} partitions" if self.partitions else "")

    @property
    def settings(self) -> dict[str, str]:
        """The service's settings except those of the log."""
        model = {"model": str(models.directory(self.model))}
        return model | {"partitions": str(self.partitions)} if self.partitions else model


@contextmanager
def running_log(log: str) -> Iterator[Log]:
    if log == "embedded":
        yield Log()
        return
    with processes.kafka() as (bootstrap, brokers):
        yield Log({"broker": f"kafka://{bootstrap}"}, brokers)


@contextmanager
def running_service(log: str = "embedded", **settings: str) -> Iterator[tuple[ServerProcess, Path]]:
    """Run the service on a log; yield it and a temporary directory, which also holds its data."""
    with (
        processes.temporary_directory() as directory,
        running_log(log) as beside,
        processes.service(directory / "data", **beside.settings, **settings) as server,
    ):
        server.brokers = beside.brokers
        yield server, directory
