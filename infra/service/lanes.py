"""Lanes: whole nodes of one machine behind one port, each with an event loop and partitions of its own.

On the embedded log, a file of the data directory has the placement: which lane has which partitions. Without the file
there is one lane with all of them. On Kafka the group assigns partitions to lanes as to any node.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from infra.disk import replace_file
from infra.errors import WrongSetting
from infra.settings import Lane, Settings
from infra.urls import Embedded
from streams.ownership import Assignment
from topics.errors import ServiceError

#: The file of the placement, in the directory of the log.
FILE: Final = "lanes"

#: The partitions of each lane.
Placement = Sequence[frozenset[int]]


class Orders(msgspec.Struct, frozen=True):
    """What a supervisor tells a lane at its start."""

    lane: Lane
    #: The partitions of each lane; none on Kafka, where the group assigns them.
    placement: tuple[frozenset[int], ...]
    #: Where the lanes reach each other.
    urls: tuple[str, ...]
    #: The public port.
    port: int
    #: Address and key of the bundled engines, if there are any.
    engines: tuple[str, str] | None
    #: Descriptors: the lock of the data directory, the listener of `urls`, and those of the operator's address.
    lock: int
    listener: int
    operators: tuple[int, ...]

    def assignment(self) -> Assignment | None:
        """Return the partitions that are placed on the lane and on the others; None on Kafka."""
        if not self.placement:
            return None
        urls = {number: url for lane, url in zip(self.placement, self.urls, strict=True) for number in lane}
        return Assignment(self.placement[self.lane.number], urls=urls)


def lanes_of(settings: Settings) -> list[Settings]:
    """Return the settings of each lane."""
    count = settings.lane_count
    return [settings.of_lane(Lane(number, count)) for number in range(count)]


def stored(settings: Settings) -> Placement:
    """Return the placement of a data directory.

    Raises:
        ServiceError: the file cannot be read.
    """
    everything = frozenset(range(settings.partition_count))
    file = _file(settings)
    if file is None:
        return [everything]
    try:
        placement = msgspec.json.decode(file.read_bytes(), type=list[frozenset[int]])
    except FileNotFoundError:
        return [everything]
    except msgspec.MsgspecError as error:
        raise ServiceError(f"{file} cannot be read ({error}): restore it from a backup") from error
    placed = [number for lane in placement for number in lane]
    if sorted(placed) != sorted(everything):
        raise ServiceError(f"{file} places {len(placed)} partitions, and there are {len(everything)}")
    return placement


def store(settings: Settings, placement: Placement) -> None:
    """Replace the placement of a data directory, durably."""
    if (file := _file(settings)) is not None:
        replace_file(file, msgspec.json.encode([sorted(lane) for lane in placement]))


def balanced(placement: Placement, count: int) -> Placement:
    """Return a placement on `count` lanes, with as equal shares as possible, that moves as few partitions as possible.

    Raises:
        WrongSetting: there are fewer partitions than lanes.
    """
    total = sum(map(len, placement))
    if count > total:
        raise WrongSetting(
            "lanes", f"there are {total} partitions, which is fixed at the first start, so at most as many"
        )
    least, more = divmod(total, count)
    before = [sorted(placement[number]) if number < len(placement) else [] for number in range(count)]
    # Those that have most keep one more than the others.
    fullest = sorted(range(count), key=lambda number: (-len(before[number]), number))
    shares = {number: least + (rank < more) for rank, number in enumerate(fullest)}
    kept = [before[number][: shares[number]] for number in range(count)]
    homeless = sorted(_all(placement) - _all(kept))
    return [frozenset((*kept[n], *(homeless.pop(0) for _ in range(shares[n] - len(kept[n]))))) for n in range(count)]


def _all(placement: Iterable[Iterable[int]]) -> set[int]:
    return {number for lane in placement for number in lane}


def _file(settings: Settings) -> Path | None:
    broker = settings.of_lane(Lane()).log
    return broker.directory / FILE if isinstance(broker, Embedded) else None
