"""Lanes: whole nodes of one machine behind one port, each with an event loop and partitions of its own.

On the embedded log, a file beside it has the placement: which lane has which partitions, and in which directories lanes
are. The first start writes it. Without the file there is one lane with all of them. On Kafka the group assigns
partitions to lanes as to any node.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from infra.db.schema import REVISION
from infra.disk import replace_file, sync
from infra.errors import WrongSetting
from infra.settings import LANES, Lane, Settings
from infra.transport.lanes import Lanes, LaneStates
from infra.transport.tallies import LaneTallies
from streams.embedded import layout
from streams.ownership import Assignment
from topics.errors import ServiceError

#: The version of the orders, the mail between lanes, and the placement.
PROTOCOL: Final = 1


def version() -> str:
    """Return the version of what lanes of one machine must agree on."""
    return f"lanes {PROTOCOL}, database {REVISION}, log {layout.FORMAT.decode()}"


class Placement(msgspec.Struct, frozen=True):
    """The partitions of each lane; none on Kafka, where the group assigns them."""

    generation: int
    partitions: tuple[frozenset[int], ...]

    def lanes(self) -> list[Lane]:
        count = len(self.partitions)
        return [Lane(number, count, self.generation) for number in range(count)]


class Orders(msgspec.Struct, frozen=True):
    """What a supervisor tells a lane at its start."""

    lane: Lane
    #: The partitions of each lane.
    placement: tuple[frozenset[int], ...]
    #: Where the lanes reach each other.
    urls: tuple[str, ...]
    #: The public port.
    port: int
    #: Address and key of the bundled engines, if there are any.
    engines: tuple[str, str] | None
    #: Descriptors: the lock of the data directory, and the listeners of the lane's URL and of the operator's address.
    lock: int
    private: tuple[int, ...]
    operators: tuple[int, ...]
    #: Descriptors: where the mail of other lanes arrives and leaves, and the states and tallies of all.
    inbox: int
    outboxes: tuple[int, ...]
    states: int
    tallies: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All descriptors that the lane gets."""
        return (self.lock, *self.private, *self.operators, self.inbox, *self.outboxes, self.states, self.tallies)

    def renumbered(self, given: Sequence[int]) -> Orders:
        """Return them with other numbers for its descriptors, in the same order."""
        own = dict(zip(self.descriptors, given, strict=True))
        return msgspec.structs.replace(
            self,
            lock=own[self.lock],
            private=tuple(own[one] for one in self.private),
            operators=tuple(own[one] for one in self.operators),
            inbox=own[self.inbox],
            outboxes=tuple(own[one] for one in self.outboxes),
            states=own[self.states],
            tallies=own[self.tallies],
        )

    def lanes(self, owner: Callable[[str], str | None]) -> Lanes:
        """Return the other lanes as connections see them; `owner` returns the URL of an id's owner, if another one."""
        outboxes = [socket.socket(fileno=one) for one in self.outboxes]
        inbox = socket.socket(fileno=self.inbox)
        return Lanes(self.lane.number, self.urls, owner, outboxes, inbox, self.lane_states())

    def others(self) -> dict[str, int]:
        """Return the numbers of the other lanes by URL."""
        return {url: number for number, url in enumerate(self.urls) if number != self.lane.number}

    def lane_tallies(self) -> LaneTallies:
        return LaneTallies(self.tallies, len(self.urls), self.lane.number)

    def lane_states(self) -> LaneStates:
        return LaneStates(self.states, len(self.urls))

    def assignment(self) -> Assignment | None:
        """Return the partitions that are placed on the lane and on the others; None on Kafka, where none are."""
        if not any(self.placement):
            return None
        urls = {number: url for lane, url in zip(self.placement, self.urls, strict=True) for number in lane}
        return Assignment(self.placement[self.lane.number], urls=urls)


def lanes_of(settings: Settings) -> list[Settings]:
    """Return the settings of each lane that a data directory has."""
    return [settings.of_lane(lane) for lane in stored(settings).lanes()]


def stored(settings: Settings) -> Placement:
    """Return the placement of a data directory.

    Raises:
        ServiceError: it is missing, cannot be read, or is of another number of partitions.
    """
    file, count = settings.placement_file, settings.lane_count
    if file is None:
        return Placement(int(count > 1), (frozenset(),) * count)
    everything = frozenset(range(settings.partition_count))
    try:
        placement = msgspec.json.decode(file.read_bytes(), type=Placement)
    except FileNotFoundError:
        # The first move stores it before it makes a lane.
        if any(next(root.glob(f"{LANES}*"), None) for root in (file.parent, settings.data)):
            raise ServiceError(f"{file} is missing, although there are lanes: restore it from a backup") from None
        return Placement(0, (everything,))
    except msgspec.MsgspecError as error:
        raise ServiceError(f"{file} cannot be read ({error}): restore it from a backup") from error
    if sorted(number for lane in placement.partitions for number in lane) != sorted(everything):
        there = sum(map(len, placement.partitions))
        raise ServiceError(
            f"{file} places {there} partitions, {len(everything)} are asked for: keys would change their partition; "
            f"set EARSHOT_PARTITIONS={there}, or use another data directory"
        )
    return placement


def store(settings: Settings, placement: Placement) -> None:
    """Replace the placement of a data directory, durably."""
    if (file := settings.placement_file) is not None:
        replace_file(file, msgspec.json.encode(placement))
        sync(file.parent)


def balanced(before: Sequence[frozenset[int]], count: int) -> tuple[frozenset[int], ...]:
    """Return the partitions of `count` lanes in shares as equal as possible; as few as possible change their number.

    Raises:
        WrongSetting: there are fewer partitions than lanes.
    """
    total = sum(map(len, before))
    if count > total:
        raise WrongSetting("lanes", f"at most {total}, the number of partitions, which is fixed at the first start")
    least, more = divmod(total, count)
    there = [sorted(before[number]) if number < len(before) else [] for number in range(count)]
    # Those that have most keep one more than the others.
    fullest = sorted(range(count), key=lambda number: (-len(there[number]), number))
    shares = {number: least + (rank < more) for rank, number in enumerate(fullest)}
    kept = [there[number][: shares[number]] for number in range(count)]
    homeless = iter(sorted(_all(before) - _all(kept)))
    return tuple(frozenset((*one, *islice(homeless, shares[number] - len(one)))) for number, one in enumerate(kept))


def _all(placement: Iterable[Iterable[int]]) -> set[int]:
    return {number for lane in placement for number in lane}
