"""Audio sessions as the edge sees them."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from topics.errors import EarshotError
from topics.folding import Verdict
from topics.hearing import Hearing, OwnSounds
from topics.ports.follower import Follower, Watch
from topics.ports.lists import Coverage, ListQuery
from topics.ports.live import ProjectFollower, SoundTap
from topics.sessions.records import Opened, SessionCommand, Tuned
from topics.sessions.rules import SessionHead


class SessionView(msgspec.Struct, frozen=True):
    """One consistent reading of a session."""

    opened: Opened
    head: SessionHead


class Windows(msgspec.Struct, frozen=True):
    """Consecutive windows scored by one model."""

    #: Index of the first window.
    first: int
    #: As of `Opened`; `Sessions.tags` knows its tags.
    model: str
    #: Packed scores (`topics.scores`), one byte a tag, window by window.
    scores: bytes


class Sessions(Protocol):
    """Audio sessions as the edge sees them. Every call may raise Unavailable; nothing was accepted then."""

    def admit(self, project: str) -> None:
        """Let a project open a session; raise Unavailable if it has the most open sessions allowed on this node."""

    def new_id(self) -> str: ...

    def owner(self, session: str) -> str | None:
        """Return the URL of the node that owns a session; None for this node, and while no owner is known."""

    async def submit(self, session: str, command: SessionCommand | Tuned) -> Verdict:
        """Append the command to the log and return the verdict of the fold."""

    def send(self, session: str, command: SessionCommand, answered: Callable[[Verdict | EarshotError], None]) -> None:
        """Append the command to the log now, in the order of the calls.

        `answered` is called with the verdict of the fold, or with why there will be none; it must not raise.

        Raises:
            NotOwned: the partition is another node's.
            Unavailable: queues are full, or no ready owner; nothing was appended.
        """
        ...

    def same_audio(self, session: str, number: int, data: bytes) -> bool:
        """Return whether an accepted chunk has these bytes; False if that is no longer known."""
        ...

    def watch(self, session: str, woken: Callable[[bool], None]) -> Watch:
        """Register a reader that is called when the session changes, with True once it is read elsewhere.

        Windows and verdicts of one batch are there when it is called; it must not raise.
        """
        ...

    def view(self, session: str) -> SessionView | None:
        """Read a session; None when it does not exist or was deleted."""

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        """Read windows [first, first + count), in order, as far as they exist."""

    def looks(self, session: str, first: int, stop: int) -> Sequence[bytes]:
        """Return the embedding that is kept with each of windows [first, stop), as far as there are any."""

    def graph(self, model: str) -> str | None:
        """Return the SHA-256 of the graph of a model's looks, None if no sounds are learnt on it."""

    def hearing(self, name: str | None, own: OwnSounds) -> tuple[str, Hearing]:
        """Return the model for a new session, in use or of a name, with own sounds that fit it, and what it is to hear.

        The model goes into `Opened` and scores the session to its end.

        Raises:
            BadRequest: there is none of that name, or it cannot be used.
        """

    def coverage(self) -> Coverage:
        """Return which partitions `listed` reads, and who has the others."""

    def listed(self, query: ListQuery) -> Sequence[tuple[int, str, SessionView]]:
        """Return (time in log ms, id, session) of a project's sessions on this node, newest first."""

    def follow(self, session: str) -> Follower:
        """Register a reader that wants to wait for changes."""

    def listen(self, session: str) -> SoundTap:
        """Listen to a session: from now on its levels and spectrograms are kept."""

    def follow_project(self, project: str, session: str | None = None) -> ProjectFollower:
        """Listen to all sessions that a project has on this node, and to one of them in more detail."""

    def model(self) -> str:
        """Return the model in use, `name@sha256 prefix`."""

    def tags(self, model: str) -> Sequence[str]:
        """Return the tags of a model, in the order of its packed scores."""

    def official_tags(self) -> Sequence[str]: ...
