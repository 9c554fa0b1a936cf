"""All named failures, with the status that an answer over HTTP has. A subclass has that of its base."""

from collections.abc import Sequence
from typing import ClassVar, Final


class EarshotError(Exception):
    """Base of all named failures."""

    status: ClassVar[int] = 500
    #: What the answer over HTTP has besides.
    headers: Sequence[tuple[bytes, bytes]] = ()


class RequestError(EarshotError):
    """The caller's request cannot be served."""

    status = 400


class BadRequest(RequestError):
    """A parameter is missing or badly formatted."""


class RuleBroken(RequestError):
    """A rule of the speaker interface is broken. The contract answers with the status of a success."""

    status = 200


class Unauthorized(RequestError):
    """The key is missing or invalid."""

    status = 401


class Exhausted(RequestError):
    """The project has used its free seconds of the month."""

    status = 402

    def __init__(self) -> None:
        super().__init__("exceeded maximum usage limit")


class Closed(RequestError):
    """The session is no longer writable."""

    status = 403


class NotFound(RequestError):
    """The session does not exist or was deleted."""

    status = 404


class Conflict(RequestError):
    """The chunk sequence is invalid."""

    status = 409


class TooLarge(RequestError):
    """The chunk or the request body is over its limit."""

    status = 413


class ServiceError(EarshotError):
    """The service cannot answer now, for no fault of the caller."""


class DirectoryDown(ServiceError):
    """The database of keys does not answer; a change may have been made, unless `uncertain` says otherwise."""

    status = 503
    #: Seconds after which the same request may succeed.
    retry_after: Final = 5

    def __init__(self, message: str, *, uncertain: bool = True) -> None:
        super().__init__(message)
        self.uncertain = uncertain


class EngineAway(ServiceError):
    """A required engine is unreachable, fails, or takes too long."""

    status = 502


class Unavailable(ServiceError):
    """A queue is full, or the partition has no ready owner; nothing was accepted, unless `uncertain` says otherwise."""

    status = 503

    def __init__(self, message: str, retry_after: int = 1, *, uncertain: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        #: The write may still succeed.
        self.uncertain = uncertain


class NotOwned(Unavailable):
    """This node does not own the partition, and waiting will not change that."""


class OwnerAway(Unavailable):
    """The node that owns the partition does not answer, and does nothing about the request."""


class AudioError(EarshotError):
    """The audio cannot be decoded as declared; clients see the message."""


class NoAudio(AudioError):
    """The data is a supported file without audio, or nothing."""

    def __init__(self, message: str = "the data holds no audio") -> None:
        super().__init__(message)


class AudioTooLong(AudioError):
    """The audio is too long."""


class EngineError(EarshotError):
    """A model file or its manifest cannot be used; the message names the fault."""


class ServiceFault(EarshotError):
    """A service of a job failed; the message becomes the error of its entry."""


class RecordError(EarshotError):
    """Bytes of a topic or table do not decode to a record or row of a known version."""


class Damaged(RecordError):
    """A session or job was set aside, because its rows cannot be used; clients see the message."""

    def __init__(self) -> None:
        super().__init__(
            "this session or job is damaged: its stored state cannot be used, and nothing was accepted. "
            "Open a new one, and tell the operator of the service"
        )
