"""The edge's access to jobs."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from topics.choices import Choices
from topics.folding import Verdict
from topics.hearing import Hearing, OwnSound
from topics.jobs.options import Service
from topics.jobs.records import Accepted, JobCommand, Part
from topics.jobs.rules import JobHead
from topics.ports.follower import Follower
from topics.ports.lists import Coverage, ListQuery
from topics.ports.pictures import Picture


class JobView(msgspec.Struct, frozen=True):
    """A consistent view of an accepted job."""

    accepted: Accepted
    head: JobHead
    #: Of a stand-by: what the owner knows may be more.
    standby: bool = False


class Jobs(Protocol):
    """Reads and changes jobs. Every call may raise Unavailable; then nothing was accepted."""

    def admit(self, project: str) -> None:
        """Raise Unavailable if a project is at its limit of unfinished jobs on this node."""

    def new_id(self) -> str: ...

    def host(self) -> str | None:
        """Return the URL of another node for new jobs; None if this one takes them, or knows no other."""

    def owner(self, job: str) -> str | None:
        """Return the URL of the node that owns a job, None if it is this one or unknown."""

    def is_moving(self, job: str) -> bool:
        """Return whether the partition of a job has no owner yet that is known here: it waits, or is taken over."""

    def plan(self) -> bytes:
        """Return the version of the assignment of partitions to nodes; a greater one is newer."""

    async def owner_changed(self) -> None:
        """Return once any partition has another owner, or its owner begins or ceases to serve."""

    async def upload(self, job: str, part: Part, project: str) -> None:
        """Append a part of a job's audio, in turn by project; return once it is durable."""

    async def submit(self, job: str, command: JobCommand) -> Verdict:
        """Append the command to the log and return its fold's verdict."""

    def view(self, job: str) -> JobView | None:
        """Return a job, or None if it does not exist, was removed, or is still being uploaded."""

    def portion(self, job: str, service: Service, number: int) -> bytes | None: ...

    def coverage(self) -> Coverage:
        """Return the partitions that `listed` reads, and the owners of the others."""

    def listed(self, query: ListQuery) -> Sequence[tuple[int, str, JobView]]:
        """Return (time in log ms, id, job) of a project's jobs on this node, newest first."""

    def recording(self, job: str) -> AbstractAsyncContextManager[int]:
        """Open a file with a job's audio as it was sent, and return its descriptor.

        Raises:
            AudioError: the audio was not kept, or is no longer on the log.
        """

    def audio(self, job: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Yield bytes [start, end) of a job's audio, holding nothing between two pieces. Raise like `recording`."""

    async def picture(self, job: str, wait_s: float) -> Picture:
        """Return the picture of a job's recording.

        Raises:
            AudioError: the audio was not kept, or none of it can be decoded.
            Unavailable: the picture is not ready within `wait_s` seconds.
        """

    def follow(self, job: str) -> Follower: ...

    def hearing(self, name: None, own: Sequence[OwnSound], choices: Choices) -> tuple[str, Hearing]:
        """Return the sound model for new jobs, with own sounds that fit it, and their `Hearing`."""
