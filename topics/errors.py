"""Every failure that has a name. The edge gives each its HTTP status (`app.http.errors`)."""


class EarshotError(Exception):
    """Something that Earshot can name went wrong."""


class RequestError(EarshotError):
    """The caller's request cannot be served."""


class BadRequest(RequestError):
    """A parameter is missing or badly formatted."""


class RuleBroken(RequestError):
    """A rule of the speaker interface is broken."""


class Unauthorized(RequestError):
    """The key is missing or invalid."""


class Exhausted(RequestError):
    """The project's free seconds of the month are spent."""

    def __init__(self) -> None:
        super().__init__("exceeded maximum usage limit")


class Closed(RequestError):
    """The session is no longer writable."""


class NotFound(RequestError):
    """The session does not exist or was deleted."""


class Conflict(RequestError):
    """The chunk sequence is invalid."""


class TooLarge(RequestError):
    """The chunk or the request body is over its limit."""


class ServiceError(EarshotError):
    """The service cannot answer now, whatever the caller does."""


class DirectoryDown(ServiceError):
    """The store that knows the keys does not answer."""


class EngineAway(ServiceError):
    """An engine that is needed for an answer cannot be reached, fails, or takes too long."""


class Unavailable(ServiceError):
    """A queue is full, or the partition has no ready owner; nothing was accepted."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotOwned(Unavailable):
    """The partition is not owned by this node, and does not come back to it by waiting alone."""


class AudioError(EarshotError):
    """The audio cannot be decoded as declared; the message is shown to the client."""


class AudioTooLong(AudioError):
    """The audio is longer than is allowed."""


class EngineError(EarshotError):
    """A model file or its manifest cannot be used; the message names the fault."""


class ServiceFault(EarshotError):
    """A service of a job has no result; the message becomes the error of its entry."""


class RecordError(EarshotError):
    """Bytes on a topic that do not decode to a record of a version we know."""
