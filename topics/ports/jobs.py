"""Jobs as the edge sees them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from topics.folding import Verdict
from topics.hearing import Hearing, OwnSounds
from topics.jobs.options import Service
from topics.jobs.records import Accepted, JobCommand, Part
from topics.jobs.rules import JobHead
from topics.ports.follower import Follower
from topics.ports.lists import Coverage, ListQuery
from topics.ports.pictures import Picture


class JobView(msgspec.Struct, frozen=True):
    """One consistent reading of a job that was accepted."""

    accepted: Accepted
    head: JobHead


class Jobs(Protocol):
    """Jobs as the edge sees them. Every call may raise Unavailable; nothing was accepted then."""

    def admit(self, project: str) -> None:
        """Let a project send a job; raise Unavailable if it has the most unfinished jobs allowed on this node."""

    def new_id(self) -> str: ...

    def owner(self, job: str) -> str | None:
        """Return the URL of the node that owns a job; None for this node, and while no owner is known."""

    async def upload(self, job: str, part: Part, project: str) -> None:
        """Append a part of a job's audio, in turn by project; returns once it is durable."""

    async def submit(self, job: str, command: JobCommand) -> Verdict:
        """Append the command to the log and return the verdict of the fold."""

    def view(self, job: str) -> JobView | None:
        """Read a job; None when it does not exist, was removed, or is still being uploaded."""

    def portion(self, job: str, service: Service, number: int) -> bytes | None: ...

    def coverage(self) -> Coverage:
        """Return which partitions `listed` reads, and who has the others."""

    def listed(self, query: ListQuery) -> Sequence[tuple[int, str, JobView]]:
        """Return (time in log ms, id, job) of a project's jobs on this node, newest first."""

    def recording(self, job: str) -> AbstractAsyncContextManager[int]:
        """Hold the descriptor of a file with a job's audio, as it was sent.

        Raises:
            AudioError: it was not kept, or the log no longer has it.
        """

    def audio(self, job: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Yield bytes [start, end) of a job's audio; between two pieces nothing is held. Raises like `recording`."""

    async def picture(self, job: str, wait_s: float) -> Picture:
        """Return the picture of a job's recording.

        Raises:
            AudioError: its audio was not kept, or nothing of it can be decoded.
            Unavailable: it is not made within `wait_s` seconds.
        """

    def follow(self, job: str) -> Follower:
        """Register a reader that wants to wait for changes."""

    def hearing(self, name: None, own: OwnSounds) -> tuple[str, Hearing]:
        """Return the sound model for new jobs with own sounds that fit it, and what it is to hear."""
