"""Agents without a node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import mode

from streams.agents import NodeApp


class Agents(mode.Service):  # type: ignore[misc]
    """Starts and stops the agents of an app, after other services; `crashes` has their exceptions."""

    def __init__(self, app: NodeApp, *before: mode.Service) -> None:
        super().__init__()
        self.app = app
        self.before = before
        self.crashes: list[BaseException] = []

    def on_init_dependencies(self) -> Iterable[mode.Service]:
        return [*self.before, self.app.agents]

    async def __aenter__(self) -> Agents:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        # Stopping a crashed agent raises its exception again.
        await asyncio.gather(self.stop(), return_exceptions=True)

    def _crash(self, reason: BaseException) -> None:
        super()._crash(reason)
        self.crashes.append(reason)
