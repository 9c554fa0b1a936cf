"""Connections between nodes that only name a process, and tell its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from streams.membership.neighbours import ANSWER_SECONDS
from tests.simulation.loop import CURRENT
from tests.simulation.world import current

if TYPE_CHECKING:
    from tests.simulation.node import Node

#: Seconds between looks whether the other process lives.
LOOK_SECONDS = 0.05


class Line:
    """Replaces `streams.membership.neighbours.Line`."""

    address = None

    def __init__(self, here: Node, there: Node, question: str) -> None:
        self._links = here.link, there.link
        self._process = there.process
        self.process = there.membership._assignor.holder.run
        self.testimony = there.membership.neighbours.testify(question.encode()).decode()

    @classmethod
    async def open(cls, url: str, address: None = None, question: str = "") -> Line:
        world = current()
        here, there = CURRENT.get().node, world.nodes[url]  # type: ignore[union-attr]
        if not world.watches:
            raise OSError("a firewall drops these connections")
        await asyncio.sleep(world.chance.random() * LOOK_SECONDS)
        if here.link.cut or there.link.cut or there.process.paused or (there.process.dead and there.keeps_port):
            await asyncio.sleep(ANSWER_SECONDS)
            raise TimeoutError
        if there.process.dead:
            raise ConnectionRefusedError
        return cls(here, there, question)

    async def ended(self) -> bool:
        while not self._process.dead or any(link.cut for link in self._links):  # noqa: ASYNC110 (nothing tells it)
            await asyncio.sleep(LOOK_SECONDS)
        return True

    def close(self) -> None: ...
