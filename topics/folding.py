"""The form of every rule: it takes a head and a record, and returns a step.

A session or job is a fold of its records in log order. Its head is the small part that changes. A rule is a pure
function of the head (None if there is none), the record and, for commands, the place in the log. It returns a `Step`:
the new head, the effects for the stream to carry out, and the verdict for the sender of a command. Rules read no clock,
table or socket, so tests can run a session or job through any history.

Records arrive at least once. A command at or below `Head.command` was folded before; a result that was folded before
changes nothing. The rows of both are rewritten, never skipped: after a crash, the redelivered record may be the only
chance to log them.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from topics.errors import EarshotError

H = TypeVar("H")


class AudioRow(msgspec.Struct, frozen=True, array_like=True):
    """A reference to a chunk or part in the command topic, in the partition of its session or job."""

    offset: int
    length: int
    #: XXH3-128 of the audio bytes.
    digest: bytes


class Head(Protocol):
    """The common part of the heads of sessions and jobs."""

    @property
    def command(self) -> int:
        """Offset of the last folded command: a command at or below it was folded before."""

    @property
    def audio(self) -> range:
        """Numbers of the chunks or parts that may be needed, the newest last."""

    @property
    def recent(self) -> Sequence[AudioRow]:
        """The references to the newest of `audio`, which have no row of their own."""

    @property
    def unsettled(self) -> bool:
        """Whether work is pending, or the audio may be needed."""

    @property
    def counted(self) -> bool:
        """Whether it counts towards its project's limit."""

    @property
    def progress(self) -> int:
        """A number that grows with the work."""

    def due(self, lifetime_ms: int) -> int:
        """Return a log time (ms) before which neither the session or job nor its audio expires."""

    def terms(self, lifetime_ms: int) -> Sequence[tuple[int, int]]:
        """Return since when (log time in ms) and how long (ms of service time) it may stay; () while work waits.

        Its time is over with the first of them that ends.
        """


def first_recent(head: Head) -> int:
    """Return the number of the first chunk or part that has its reference in the head."""
    return head.audio.stop - len(head.recent)


class Folded(msgspec.Struct, frozen=True, array_like=True):
    """How far the topics are folded into rows of the changelog."""

    #: For each topic the offset below which all records are.
    positions: dict[str, int] = {}
    #: A log time (ms): what the owner had folded by then is among them.
    at: int = 0


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """The record of an upload with an Idempotency-Key."""

    key: bytes
    digest: bytes


class Arrival(msgspec.Struct, frozen=True):
    """The place and time of a command in the log, and facts about its audio."""

    offset: int
    #: Log time in milliseconds.
    at: int
    #: XXH3-128 of the audio, b"" if there is none.
    digest: bytes = b""
    #: The receipt of an earlier upload of the same chunk.
    receipt: Receipt | None = None
    #: Its sender was told that the write may still succeed, or was told nothing.
    given_up: bool = False

    def row_of(self, data: bytes) -> AudioRow:
        """Return the reference to the audio of the command."""
        return AudioRow(self.offset, len(data), self.digest)


class Verdict(msgspec.Struct, frozen=True):
    """The answer to a command: an HTTP status, the next chunk number, and a message if refused."""

    status: int
    next: int = 0
    error: str | None = None


#: What the sender of a command gets.
Answer = Verdict | EarshotError


class Effect(StrEnum):
    """The work of the stream for a step, besides writing the head."""

    KEEP_REQUEST = "write the row of the record that opened the session or completed the job's upload, or of a change"
    KEEP_AUDIO = "keep the audio of the chunk or part in the log, and write its row unless the head has its reference"
    KEEP_ANCHOR = "write the row of the capture time that the chunk told"
    KEEP_RECEIPT = "write the row of the chunk's Idempotency-Key"
    KEEP_RESULT = "write the rows of the portion"
    DROP_AUDIO = "release the chunks or parts, and delete their rows: nothing will read them"
    WORK = "tell the analyser, or the runner of services, that there is work"
    BILL = "tell the biller"
    WATCH = "write an entry of the expiry index"
    UNWATCH = "delete the entry of the expiry index that led here"
    RECALL = "write the rows of windows again, because later ones may be on their way to the changelog"
    CANCEL = "stop the work that goes on"
    ERASE = "delete every row, except a head that stays, and its request while it is not billed"


OK: Final = Verdict(200)


class Step(msgspec.Struct, Generic[H], frozen=True):
    """The outcome of one record: the new head (None if it is gone), effects, and the verdict."""

    head: H | None
    effects: tuple[Effect, ...] = ()
    verdict: Verdict = OK


def refusal(verdict: Verdict) -> Callable[..., Step[Any]]:
    return lambda head, command, arrival: Step(head, verdict=verdict)
