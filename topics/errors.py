"""Every failure that has a name, each knowing the HTTP status it hints at.

EarshotError
├── RequestError              the caller did something wrong
│   ├── BadRequest       400
│   ├── RuleBroken       200  a rule of the speaker interface, whose errors have this status
│   ├── Unauthorized     401
│   ├── Exhausted        402  the project's free seconds are spent
│   ├── Closed           403  the session takes no more chunks
│   ├── NotFound         404
│   ├── Conflict         409  the chunk number is not the next one
│   └── TooLarge         413
├── ServiceError              the service cannot answer now
│   ├── DirectoryDown    500  the key store does not answer
│   ├── EngineAway       502  an engine that has to answer now does not
│   └── Unavailable      503  retry after some seconds
├── AudioError                audio that does not decode, or breaks a cap
│   └── AudioTooLong          it is longer than is allowed
├── EngineError               a model file or manifest that cannot be used
├── ServiceFault              a service of a job failed; the message is its entry's error
└── RecordError               bytes on a topic that are no record of ours
"""

from __future__ import annotations


class EarshotError(Exception):
    """Something that Earshot can name went wrong."""

    status_hint = 500


class RequestError(EarshotError):
    """The caller's request cannot be served."""

    status_hint = 400


class BadRequest(RequestError):
    """A parameter is missing or badly formatted."""


class RuleBroken(RequestError):
    """A rule of the speaker interface is broken, which it tells with the status of a success."""

    status_hint = 200


class Unauthorized(RequestError):
    """The key is missing or invalid."""

    status_hint = 401


class Exhausted(RequestError):
    """The project's free seconds of the month are spent."""

    status_hint = 402


class Closed(RequestError):
    """The session is no longer writable."""

    status_hint = 403


class NotFound(RequestError):
    """The session does not exist or was deleted."""

    status_hint = 404


class Conflict(RequestError):
    """The chunk sequence is invalid."""

    status_hint = 409


class TooLarge(RequestError):
    """The chunk or the request body is over its limit."""

    status_hint = 413


class ServiceError(EarshotError):
    """The service cannot answer now, whatever the caller does."""


class DirectoryDown(ServiceError):
    """The store that knows the keys does not answer."""


class EngineAway(ServiceError):
    """An engine without which there is no answer cannot be reached, fails, or takes too long."""

    status_hint = 502


class Unavailable(ServiceError):
    """A queue is full, or the partition has no ready owner; nothing was accepted."""

    status_hint = 503

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


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
