"""A service of a job: the protocol of every service, its input for a run and its result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from topics.jobs.options import Service
from topics.jobs.records import Accepted


class RunSummary(msgspec.Struct, frozen=True):
    """The report of a service that succeeded, besides its portions."""

    #: The model: `name@sha256 prefix`, or the engine's model name.
    model: str
    #: Analysed audio in milliseconds: this is billed.
    audio_ms: int
    warnings: tuple[str, ...] = ()


class ServiceRun(Protocol):
    """One run of one service of one job."""

    @property
    def job(self) -> str:
        """The job's id."""

    @property
    def accepted(self) -> Accepted:
        """The job as it was accepted: its options and its audio."""

    @property
    def run(self) -> str:
        """The run's id, new for each attempt; idempotency keys that engines receive begin with it."""

    async def audio(self) -> Path:
        """Return a file with the job's audio; all services of the job share it, and it exists until the run ends.

        Raises:
            AudioError: the log no longer has it.
            Unavailable: the log does not answer now.
        """

    def portions(self, service: Service) -> Sequence[bytes]:
        """Return the portions of another service that has succeeded; none if it failed or was not requested."""

    def audio_ms(self) -> int:
        """Return the length of the audio in milliseconds as measured by services that have ended; 0 before any has."""

    async def emit(self, data: bytes, done: float) -> None:
        """Append the next portion (at most about PORTION_BYTES); `done` is the share of the work that is done, 0 to 1.

        Raises:
            Unavailable: the log does not take it.
        """


class JobService(Protocol):
    """Runs one service. It holds no partition; a run is cancelled when its job is removed or the node stops."""

    @property
    def limit(self) -> int:
        """How many runs may go on at a time in this process."""

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Do the work of one run; emitted portions stay readable when it fails.

        Raises:
            Unavailable: the log does not answer; the run is tried again.
            Exception: the service failed; the message becomes the error of its entry.
        """
