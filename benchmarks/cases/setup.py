"""How a run of the benchmarks was asked for, and the logs that it measures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from benchmarks import processes


class Setup(msgspec.Struct, frozen=True):
    """What all cases need to know."""

    pairs: int = 5
    #: Runs of a tenth of the length: to see that everything works, not to quote.
    quick: bool = False
    kafka: bool = True

    def size(self, full: int, least: int = 16) -> int:
        """Return the length of a run that is `full` long when it is not quick."""
        return max(least, full // 10) if self.quick else full

    def logs(self) -> list[str]:
        """Return the logs to measure on."""
        return ["embedded", "kafka"] if self.kafka else ["embedded"]


class Log(msgspec.Struct, frozen=True):
    """One log that is running: the service's settings for it, and the broker's processes."""

    settings: dict[str, str] = {}
    brokers: tuple[int, ...] = ()


@contextmanager
def running(log: str) -> Iterator[Log]:
    """Run what a log needs besides the service."""
    if log == "embedded":
        yield Log()
        return
    with processes.kafka() as (bootstrap, brokers):
        yield Log({"broker": f"kafka://{bootstrap}"}, brokers)
