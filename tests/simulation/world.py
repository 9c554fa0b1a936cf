"""The world of one history: a loop, a clock, brokers, a consumer group; and the current world of the seams."""

from __future__ import annotations

import random
from contextvars import copy_context
from typing import TYPE_CHECKING, Final

from tests.simulation.group import Group
from tests.simulation.log import Cluster
from tests.simulation.loop import SimulatedLoop
from tests.simulation.threads import Threads

if TYPE_CHECKING:
    from tests.simulation.alarms import Received
    from tests.simulation.node import Node

EPOCH_MS: Final = 1_700_000_000_000


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.loop = SimulatedLoop()
        self.threads = Threads(self.loop, self.chance)
        self.jumped_ms = 0
        #: Whether nodes and supervisors see the ends of processes.
        self.watches = random.Random(f"watches {seed}").random() < 0.5
        self.cluster = Cluster(self.loop, self.chance, self.wall_ms, copy_context())
        self.group = Group(self.loop, self.cluster)
        #: By URL.
        self.nodes: dict[str, Node] = {}
        #: The alarms that destinations received.
        self.received: Received = {}
        #: What went wrong.
        self.wrongs: list[str] = []

    def wrong(self, what: str) -> None:
        if what not in self.wrongs:
            self.wrongs.append(what)

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, the time of correct clocks."""
        return EPOCH_MS + self.jumped_ms + int(self.loop.now * 1000)

    def jump(self, seconds: float) -> None:
        self.jumped_ms += int(seconds * 1000)

    def close(self) -> None:
        """End everything in the history."""
        self.threads.close()
        self.loop.end()


class _Now:
    world: World


def current() -> World:
    return _Now.world


def enter(world: World) -> None:
    _Now.world = world


def leave() -> None:
    """Forget the world that is current, and with it what its killed processes left."""
    del _Now.world
