"""What runs a service of a job, and what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from topics.jobs.options import Service
from topics.jobs.records import Accepted


class Done(msgspec.Struct, frozen=True):
    """What is told of a service that succeeded, besides its portions."""

    #: What did the work: `name@sha256 prefix`, or the engine's model name.
    model: str
    #: Audio that was analysed, in milliseconds: what is billed.
    audio_ms: int
    warnings: tuple[str, ...] = ()


class Work(Protocol):
    """One run of one service of one job."""

    @property
    def job(self) -> str:
        """The job's id."""
        ...

    @property
    def accepted(self) -> Accepted:
        """What was asked for, of which audio."""
        ...

    @property
    def run(self) -> str:
        """The run's name, new for each attempt: what an engine is given as idempotency key begins with it."""
        ...

    async def audio(self) -> Path:
        """Return the job's audio as a file that lasts to the end of the run, shared by the job's services.

        Raises:
            AudioError: the log no longer has it.
            Unavailable: the log does not answer now.
        """
        ...

    def portions(self, service: Service) -> Sequence[bytes]:
        """Return the portions of another service that has succeeded; none where it failed or was not asked for."""
        ...

    def audio_ms(self) -> int:
        """Return the length of the audio in milliseconds, as services that have ended found it; 0 before any has."""
        ...

    async def emit(self, data: bytes, done: float) -> None:
        """Append the next portion (at most about PORTION_BYTES) and how much of the work is done, 0 to 1.

        Raises:
            Unavailable: the log does not take it.
        """
        ...


class Performer(Protocol):
    """Runs one service. It holds no partition, and is cancelled when the job is removed or the node stops."""

    @property
    def limit(self) -> int:
        """How many runs go on at a time in this process."""
        ...

    async def perform(self, work: Work) -> Done:
        """Do the work; portions that were emitted stay readable when it fails.

        Raises:
            Unavailable: the log does not answer; the run is tried again.
            Exception: the service failed; the message is the error of its entry.
        """
        ...
