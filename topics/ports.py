"""The sockets in the walls: what the edge asks of the streams and of the control plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from topics.lifecycle import Head, Verdict
from topics.records import Command, Opened


class View(msgspec.Struct, frozen=True):
    """One consistent reading of a session."""

    opened: Opened
    head: Head


class Windows(msgspec.Struct, frozen=True):
    """Consecutive windows scored by one model."""

    #: Index of the first window.
    first: int
    #: `name@sha256 prefix` of the model; `Sessions.tags` knows its tags.
    model: str
    #: Packed scores (`topics.scores`), one byte a tag, window by window.
    scores: bytes


class Follower(Protocol):
    """A reader that waits for a session to change; registered before it reads, so that no change is missed."""

    async def changed(self, timeout: float) -> bool:
        """Wait until the session changed since the last call or since registration; False after `timeout` s.

        Raises:
            Unavailable: the partition went to another node.
        """
        ...

    def close(self) -> None:
        """Stop following; allowed twice."""
        ...


class Sessions(Protocol):
    """Audio sessions as the edge sees them. Every call may raise Unavailable; nothing was accepted then."""

    def new_id(self) -> str:
        """Return an id for a new session, one that this node owns."""
        ...

    def owner(self, session: str) -> str | None:
        """Return the URL of the node that owns a session; None for this one, and while nobody is known to."""
        ...

    async def submit(self, session: str, command: Command) -> Verdict:
        """Append the command to the log and return the verdict of the fold.

        Raises:
            Unavailable: queues are full, the log does not take the record, no owner, or no verdict in time.
        """
        ...

    def view(self, session: str) -> View | None:
        """Read a session; None when it does not exist or was deleted."""
        ...

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        """Read windows [first, first + count) as far as they exist, in order."""
        ...

    def follow(self, session: str) -> Follower:
        """Register a reader that wants to wait for changes."""
        ...

    def model(self) -> str:
        """Return the model in use, `name@sha256 prefix`: it goes into `Opened` and scores the session to its end."""
        ...

    def tags(self, model: str) -> Sequence[str]:
        """Return the tags of a model, in the order of its packed scores."""
        ...

    def official_tags(self) -> Sequence[str]:
        """Return the tags of the model in use."""
        ...


class Principal(msgspec.Struct, frozen=True):
    """Whom a project key speaks for."""

    project: str
    organization: str


class Directory(Protocol):
    """The control plane's answer to one question: whose key is this?"""

    async def project(self, key: str) -> Principal | None:
        """Return whom a project key belongs to, None for an unknown or rotated one.

        Raises:
            DirectoryDown: the store does not answer.
        """
        ...


class Health(Protocol):
    """What the probes ask."""

    def alive(self) -> str | None:
        """Return None while the process works, else why it is about to stop."""
        ...

    def ready(self) -> str | None:
        """Return None when requests can be served, else what is waited for."""
        ...
