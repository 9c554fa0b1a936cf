"""The protocol of every job service, with its input and result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from topics.jobs.options import Service
from topics.jobs.records import Accepted


class RunSummary(msgspec.Struct, frozen=True):
    """What a successful service reports, besides its portions."""

    #: `name@sha256 prefix` of the model, or the engine's name for it.
    model: str
    #: Analysed audio in milliseconds; this is billed, except the silence.
    audio_ms: int
    warnings: tuple[str, ...] = ()
    #: Milliseconds of silence that stand for gaps in the recording.
    silence_ms: int = 0


class ServiceRun(Protocol):
    """One run of one service of one job: its input and its output."""

    @property
    def job(self) -> str:
        """The job's id."""

    @property
    def accepted(self) -> Accepted:
        """The job as it was accepted: its options and its audio."""

    @property
    def run(self) -> str:
        """The run's id, new for each attempt; idempotency keys sent to engines begin with it."""

    async def audio(self) -> Path:
        """Return a file with the job's audio, shared by the job's services and kept until the run ends.

        Raises:
            AudioError: the log no longer holds the audio.
            Unavailable: the log does not answer, or the disk does not accept it.
        """

    def check_room(self, size: int) -> None:
        """Check that the disk has room for `size` more bytes beside the audio. Any thread.

        Raises:
            Unavailable: it would have less free space than it must keep.
        """

    def portions(self, service: Service) -> Sequence[bytes]:
        """Return the portions of another service that succeeded; none if it failed or was not requested."""

    def audio_ms(self) -> int:
        """Return the audio's length in milliseconds, as measured by services that ended; 0 before any has."""

    async def emit(self, data: bytes, done: float) -> None:
        """Append the next portion, at most about PORTION_BYTES; `done` is the completed share of the work, 0 to 1.

        Raises:
            Unavailable: the log does not accept it.
        """


class JobService(Protocol):
    """Runs one service. It holds no partition; removing a run's job or stopping the node cancels the run."""

    @property
    def limit(self) -> int:
        """Maximum number of concurrent runs in this process."""

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Do one run's work; portions emitted before a failure stay readable.

        Raises:
            Unavailable: the log does not answer; the run is retried.
            Exception: the service failed; the message becomes the error of its entry.
        """
