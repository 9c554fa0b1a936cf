"""The edge's access to audio sessions."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from topics.alarms.tags import Classes
from topics.choices import Choices
from topics.folding import Answer, Verdict
from topics.hearing import Hearing, OwnSound
from topics.media import Media
from topics.ports.follower import Follower, Subscription
from topics.ports.lists import Coverage, ListQuery
from topics.ports.live import ProjectFollower, SoundTap
from topics.sessions.capture import CaptureTime, SourceNote
from topics.sessions.records import Opened, SessionCommand, Tuned
from topics.sessions.rules import SessionHead


class SessionView(msgspec.Struct, frozen=True):
    """A consistent view of a session."""

    opened: Opened
    head: SessionHead
    #: Of a stand-by: what the owner knows may be more, and only the end tells that nothing follows.
    standby: bool = False

    @property
    def in_progress(self) -> bool:
        """Whether uploaded chunks still wait for analysis, as far as is known."""
        return not self.head.ended if self.standby else self.head.in_progress


class Windows(msgspec.Struct, frozen=True):
    """Consecutive windows scored by one model."""

    #: Index of the first window.
    first: int
    #: As in `Opened`; `Sessions.tags` returns its tags.
    model: str
    #: Packed scores (`topics.scores`), one byte per tag, window by window.
    scores: bytes


class Sessions(Protocol):
    """Reads and changes audio sessions. Every call may raise Unavailable; then nothing was accepted."""

    def admit(self, project: str) -> None:
        """Raise Unavailable if a project is at its limit of open sessions on this node."""

    def new_id(self) -> str: ...

    def host(self) -> str | None:
        """Return the URL of another node for new sessions; None if this one takes them, or knows no other."""

    def owner(self, session: str) -> str | None:
        """Return the URL of the node that owns a session, None if it is this one or unknown."""

    def is_moving(self, session: str) -> bool:
        """Return whether the partition of a session has no owner yet that is known here: it waits, or is taken over."""

    def plan(self) -> bytes:
        """Return the version of the assignment of partitions to nodes; a greater one is newer."""

    async def owner_changed(self) -> None:
        """Return once any partition has another owner, or its owner begins or ceases to serve."""

    async def submit(self, session: str, command: SessionCommand | Tuned) -> Verdict:
        """Append the command to the log and return its fold's verdict."""

    def send(self, session: str, command: SessionCommand, answered: Callable[[Answer], None]) -> None:
        """Append the command to the log now, in the order of the calls.

        Call `answered` later with the fold's verdict or an error; it must not raise.

        Raises:
            NotOwned: another node owns the partition.
            Unavailable: queues are full, or there is no ready owner; nothing was appended.
        """

    def same_audio(self, session: str, number: int, data: bytes) -> bool:
        """Return whether an accepted chunk has these bytes; False if unknown by now."""

    def check_beginning(self, declared: Media, head: bytes) -> None:
        """Raise AudioError if raw PCM of this type begins like a container."""

    def check_floats(self, declared: Media, samples: bytes) -> None:
        """Raise AudioError if a whole sample of raw PCM is a float that is not plausible."""

    def subscribe(self, session: str, woken: Callable[[bool], None]) -> Subscription:
        """Call `woken` when the session changes, with True once another node owns it.

        The windows and verdicts of a batch are readable when it is called. It must not raise.
        """

    def view(self, session: str) -> SessionView | None:
        """Return a session, or None if it does not exist or was deleted."""

    def windows(self, session: str, first: int, count: int) -> Sequence[Windows]:
        """Return the existing windows of [first, first + count), in order."""

    def time_of(self, session: str, position_ms: int) -> CaptureTime:
        """Return when the audio at a position of a session was captured."""

    def notes(self, session: str, first: int, stop: int) -> Sequence[SourceNote]:
        """Return the existing notes [first, stop) of a session's source, in order."""

    def embeddings(self, session: str, first: int, stop: int) -> Sequence[bytes]:
        """Return the embeddings kept with windows [first, stop), as far as there are any."""

    def graph(self, model: str) -> str | None:
        """Return the SHA-256 of the graph that embeds a model's contexts, None if no sounds can be learnt on it."""

    def hearing(self, name: str | None, own: Sequence[OwnSound], choices: Choices) -> tuple[str, Hearing]:
        """Return the model of a new session (by default the one in use) with fitting own sounds, and their `Hearing`.

        The model goes into `Opened` and scores the session to its end.

        Raises:
            BadRequest: there is no model of that name, or it cannot be used.
        """

    def coverage(self) -> Coverage:
        """Return the partitions that `listed` reads, and the owners of the others."""

    def listed(self, query: ListQuery) -> Sequence[tuple[int, str, SessionView]]:
        """Return (time in log ms, id, session) of a project's sessions on this node, newest first."""

    def follow(self, session: str) -> Follower: ...

    def listen(self, session: str) -> SoundTap:
        """Listen to a session: from now on, its levels and spectrograms are kept."""

    def follow_project(self, project: str, session: str | None = None) -> ProjectFollower:
        """Listen to all sessions of a project on this node, and to `session` in more detail."""

    def model(self) -> str:
        """Return the model in use, `name@sha256 prefix`."""

    def tags(self, model: str) -> Sequence[str]:
        """Return the tags of a model, in the order of its packed scores."""

    def official_tags(self) -> Sequence[str]: ...

    def classes(self) -> Classes:
        """Return the classes of the official tags, which rules of alarms may name."""
