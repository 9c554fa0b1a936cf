"""Statistics of an engine's calls since the start, for operators."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from topics.errors import ServiceFault


class CallRecord:
    """Counts calls, and remembers the last success and the last failure. Loop only."""

    def __init__(self) -> None:
        self.calls = self.failures = self.in_flight = 0
        #: Of all calls that have ended.
        self.seconds = 0.0
        #: Latency of the last successful call.
        self.latency_ms: int | None = None
        self.error: str | None = None
        self.failed_at_ms: int | None = None
        self.failing = False

    @contextmanager
    def call(self) -> Iterator[None]:
        began = time.time()
        self.calls += 1
        self.in_flight += 1
        try:
            yield
        except ServiceFault as error:
            self.failures += 1
            self.failing, self.error, self.failed_at_ms = True, str(error), int(time.time() * 1000)
            raise
        else:
            self.failing = False
            self.latency_ms = int(time.time() * 1000) - int(began * 1000)
        finally:
            self.in_flight -= 1
            self.seconds += max(0.0, time.time() - began)
