"""Where spans of traces begin: empty unless the service sends traces.

What can be traced asks for `tracer` once, where it is made, or tests it for None. Nothing else is done without it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

Endpoint = Callable[[Any, Any, Any], Awaitable[None]]
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class StepSpans(Protocol):
    """The spans of one step of a session."""

    def begin(self, part: str) -> None:
        """Begin a part of the step; the one before has ended."""

    def end(self, windows: int = 0, error: BaseException | None = None) -> None:
        """End the step, with the number of its windows or an error."""


class Tracer(Protocol):
    """Makes spans. Loop only."""

    def serving(self, route: str, endpoint: Endpoint) -> Endpoint:
        """Return the ASGI endpoint of a route, with a span for each request."""

    def forwarding(self, ask: F) -> F:
        """Return the `ask` of a client that forwards requests to other nodes, with a span for each request."""

    def sending(self, template: str, send: F) -> F:
        """Return the `send` of an HTTP client that calls an engine at a path, with a span for each call."""

    def accepted(self, job: str) -> None:
        """Link the request that is served to the trace of the job that it made."""

    def completed(self, job: str, created: int, ended: int, failures: int) -> None:
        """Note a job between two log times (ms), and how many of its services failed."""

    def running(self, attempt: F) -> F:
        """Return what runs a service of a job once, with a span for each run."""

    def failed(self, error: BaseException) -> None:
        """Note that what the current span is about has failed."""

    def step(self, session: str, partition: int, chunks: Sequence[int], began: int) -> StepSpans | None:
        """Return the spans of a step that began at a time (ns) and takes these chunks; None if none is sampled."""


#: Set once, before anything that asks for it is made.
tracer: Tracer | None = None
