"""Steps of sessions with spans."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from streams.sessions.step import SessionStep, SessionSteps
from streams.sessions.warm import ActiveSession
from streams.workers.messages import Answer
from topics.traces import StepSpans, Tracer

T = TypeVar("T")


class TracedSteps(SessionSteps):
    """Notes when each part of a sampled step begins and ends. Loop only."""

    def __init__(self, tracer: Tracer, *args: Any) -> None:
        super().__init__(*args)
        self._tracer = tracer

    async def begin(self, active: ActiveSession, shares: bool) -> SessionStep | float | None:
        began = time.time_ns()
        step = await super().begin(active, shares)
        if isinstance(step, SessionStep) and active.analysis is not None:
            first = active.analysis.taken
            # The steps of a file are in the trace of its first chunk.
            chunks = range(1) if active.file is not None else range(first, first + len(step.rows))
            step.spans = self._tracer.step(active.id, step.store.partition.number, chunks, began)
        return step

    def ask(self, step: SessionStep) -> Awaitable[Answer]:
        return self._begin(step, "score", super().ask)

    async def absorb(self, step: SessionStep, asked: Awaitable[Answer]) -> None:
        if step.spans is None:
            await super().absorb(step, asked)
            return
        await self._end(step.spans, super().absorb(step, asked))
        if step.windows is None:
            step.spans.end()

    def write(self, step: SessionStep) -> Awaitable[None]:
        return self._begin(step, "write", super().write)

    async def finish(self, step: SessionStep, written: Awaitable[None]) -> None:
        if step.spans is None or step.windows is None:
            await super().finish(step, written)
            return
        count = step.active.windows - step.windows.first
        await self._end(step.spans, super().finish(step, written))
        step.spans.end(count)

    def _begin(self, step: SessionStep, part: str, act: Callable[[SessionStep], T]) -> T:
        if step.spans is None:
            return act(step)
        step.spans.begin(part)
        try:
            return act(step)
        except Exception as error:
            step.spans.end(error=error)
            raise

    async def _end(self, spans: StepSpans, act: Awaitable[None]) -> None:
        try:
            await act
        except Exception as error:
            spans.end(error=error)
            raise
