"""The options of a run, and the logs that it measures."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from benchmarks import processes
from infra import models


class Setup(msgspec.Struct, frozen=True):
    """The options of a run of the benchmarks."""

    pairs: int = 5
    #: Runs have a tenth of the length, to see that everything works; the figures are not to be quoted.
    quick: bool = False
    kafka: bool = True

    def size(self, full: int, least: int = 16) -> int:
        """Return the length of a run: `full`, or when it is quick a tenth of that, at least `least`."""
        return max(least, full // 10) if self.quick else full

    def logs(self) -> list[str]:
        return ["embedded", "kafka"] if self.kafka else ["embedded"]


class Log(msgspec.Struct, frozen=True):
    """A log that is running: the settings with which the service uses it, and the processes of the broker."""

    settings: dict[str, str] = {}
    brokers: tuple[int, ...] = ()


class Variant(msgspec.Struct, frozen=True):
    """What a row is measured with: the sound model, the log, and the partitions where they are chosen."""

    model: str
    log: str
    partitions: int | None = None

    def __str__(self) -> str:
        return f"{self.model}, {self.log}" + (f", {self.partitions} partitions" if self.partitions else "")

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the service, those of the log aside."""
        model = {"model": str(models.directory(self.model))}
        return model | {"partitions": str(self.partitions)} if self.partitions else model


@contextmanager
def running_log(log: str) -> Iterator[Log]:
    """Run the broker of a log, if it has one."""
    if log == "embedded":
        yield Log()
        return
    with processes.kafka() as (bootstrap, brokers):
        yield Log({"broker": f"kafka://{bootstrap}"}, brokers)
