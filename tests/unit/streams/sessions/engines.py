"""Engines that fail, wait, or require concurrent calls."""

import threading

from streams.models.protocol import Floats
from tests.unit.streams.audio.engines import Fingerprint


class Faulty(Fingerprint):
    """Raises given errors, once each."""

    def __init__(self, *faults: BaseException) -> None:
        super().__init__()
        self.faults = list(faults)

    def scores(self, patch: Floats) -> Floats:
        if self.faults:
            raise self.faults.pop(0)
        return super().scores(patch)


class Gated(Fingerprint):
    """Waits before each patch until the gate is open; signals that it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.gate = threading.Event()

    def scores(self, patch: Floats) -> Floats:
        self.begun.set()
        assert self.gate.wait(60)
        return super().scores(patch)


class Meeting(Fingerprint):
    """Each of two threads waits for the other one before its first patch."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self.barrier = threading.Barrier(2, timeout=60)

    def scores(self, patch: Floats) -> Floats:
        if (thread := threading.get_ident()) not in self.threads:
            self.threads.add(thread)
            self.barrier.wait()
        return super().scores(patch)
