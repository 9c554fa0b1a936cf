"""The shape of every rule: a head and a record go in, a step comes out.

Theory. A session or a job is a fold of its records in log order. Its head is the small part that changes. A rule is a
pure function of the head (None where there is none), the record and, for commands, its place in the log. It returns a
`Step`: the new head, the effects that the stream has to carry out, and the verdict that the sender of a command gets.
Nothing here reads a clock, a table or a socket, so a test can push a session or a job through any history.

Records arrive at least once. A command at or below `Head.command` was folded before; a result that was folded before
changes nothing. Either is written again, never skipped: after a crash the redelivered record may be the only chance to
put a row into the changelog.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

H = TypeVar("H")

#: Work that was begun this many times without progress, each time by a process that died meanwhile, is failed.
DEATHS: Final = 3
#: So often the process may be killed from outside meanwhile: killers that leave no trace are stopped by that alone.
KILLS: Final = 30
DEADLY: Final = "the analysis of this audio ended the process three times; it is not tried again"
KILLED: Final = f"the process was killed {KILLS} times during the analysis of this audio; it is not tried again"


class Head(Protocol):
    """Common to the heads of sessions and jobs."""

    @property
    def command(self) -> int:
        """Offset of the command that was folded last: a command at or below it was folded before."""

    @property
    def audio(self) -> range:
        """Numbers of the chunks or parts whose rows may exist; the last one is the newest."""

    @property
    def unsettled(self) -> bool:
        """True while it needs work, or its audio may be needed."""

    @property
    def counted(self) -> bool:
        """True while it counts towards its project's limit."""

    def due(self, lifetime_ms: int) -> int:
        """Return the log time (ms) after which the session or job, or what is kept of it, may expire."""


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """The memory of an upload that had an Idempotency-Key."""

    key: bytes
    digest: bytes


class Arrival(msgspec.Struct, frozen=True):
    """The place and time of a command in the log, and facts about the audio that it carries."""

    offset: int
    #: Log time in milliseconds.
    at: int
    #: XXH3-128 of the audio, b"" without any.
    digest: bytes = b""
    #: The receipt of an earlier upload of the same chunk.
    receipt: Receipt | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The answer to a command: an HTTP status, the next chunk number, and a message when refused."""

    status: int
    next: int = 0
    error: str | None = None


class Effect(StrEnum):
    """The stream's work besides writing the head."""

    KEEP_REQUEST = "write the row of the record that opened the session or completed the job's upload"
    KEEP_AUDIO = "write the row of the chunk or part: log offset, length, hash"
    KEEP_RECEIPT = "write the row of the chunk's Idempotency-Key"
    KEEP_RESULT = "write the rows of the windows, or of the portion"
    DROP_AUDIO = "delete the rows of chunks or parts: nothing will read them"
    WORK = "tell the analyser, or the runner of services, that there is work"
    BILL = "tell the biller"
    WATCH = "write an entry of the expiry index"
    UNWATCH = "delete the entry of the expiry index that led here"
    CANCEL = "stop the work that goes on"
    ERASE = "delete every row, but of a removed job the head, and the acceptance while it is not billed"


OK: Final = Verdict(200)


class Step(msgspec.Struct, Generic[H], frozen=True):
    """The outcome of one record: the head after it, or None if there is none any longer."""

    head: H | None
    effects: tuple[Effect, ...] = ()
    verdict: Verdict = OK


def refusal(verdict: Verdict) -> Callable[..., Step[Any]]:
    return lambda head, command, arrival: Step(head, verdict=verdict)
