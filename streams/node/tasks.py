"""The background tasks of a node, and the handling of their failures."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import mode
import structlog

from topics.errors import ServiceError, Unavailable

log = structlog.get_logger(__name__)


class Tasks(mode.Service):  # type: ignore[misc]
    """Runs the background tasks of a node; the first failure stops the node. Loop only."""

    mundane_level = "debug"

    def __init__(self, on_failure: Callable[[], None]) -> None:
        super().__init__()
        #: Why the node must stop, None while it works.
        self.failure: str | None = None
        self._on_failure = on_failure
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        # Not `add_future`: a task cancelled before it starts would leave a coroutine that is never awaited.
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Record the first failure, which fails the health check for good, and stop the node."""
        if self.failure is None:
            self.failure = f"{type(error).__name__}: {error}"
            # A ServiceError is a fault of the machine and needs no traceback.
            is_said = isinstance(error, ServiceError) and not isinstance(error, Unavailable)
            log.error("node.failed", error=self.failure, exc_info=None if is_said else error)
            self._on_failure()

    async def on_stop(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
