"""Everything that a call of the client can raise.

EarshotClientError
├── Unreachable              the service did not answer, also not when asked again
├── UnknownFormat            a file that is no audio of a kind that the service decodes
├── SessionFailed            the session's audio cannot be analysed
├── JobFailed                the job was removed before it ended
└── Refused                  the service answered with an error
    ├── SpeakerRefused 200   a rule of the speaker interface is broken, which it tells with the status of a success
    ├── WrongKey       401
    ├── Exhausted      402   the project's free seconds of the month are spent
    ├── SessionClosed  403   the session takes no more chunks
    ├── NoSession      404   the session never was, was deleted or has expired
    ├── NoJob          404   the job never was, was deleted or has expired
    ├── WrongSequence  409   the chunk number is not the next one
    ├── JobConflict    409   the job has not ended, or the Idempotency-Key was used for another request
    ├── EngineAway     502   the speaker engine does not answer
    └── Busy           503   the service was still busy after all retries
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


class EarshotClientError(Exception):
    """The service could not be used."""


class Unreachable(EarshotClientError):
    """No answer came; whether the request was carried out is not known."""


class UnknownFormat(EarshotClientError):
    """The file is not audio of a kind that the service decodes."""


class SessionFailed(EarshotClientError):
    """The session became readonly because of an error, which is the message."""


class JobFailed(EarshotClientError):
    """The job will have no result, for the reason that is the message."""


class Refused(EarshotClientError):
    """The service answered with an error: `status` and the service's own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SpeakerRefused(Refused):
    """A rule of the speaker interface is broken: of names, recordings, or how many there may be."""


class WrongKey(Refused):
    """The key of the project or the organization is missing or invalid."""


class Exhausted(Refused):
    """The project's free seconds of the month are spent."""


class SessionClosed(Refused):
    """The session takes no more chunks."""


class NoSession(Refused):
    """The session never was, was deleted or has expired."""


class NoJob(Refused):
    """The job never was, was deleted or has expired."""


class WrongSequence(Refused):
    """The chunk number is not the next one."""


class JobConflict(Refused):
    """The job has not ended, or the Idempotency-Key was used for another request."""


class EngineAway(Refused):
    """The speaker engine does not answer."""


class Busy(Refused):
    """The service was still busy after all retries."""


Kinds = Mapping[int, type[Refused]]

BY_STATUS: Final[Kinds] = {
    401: WrongKey,
    403: SessionClosed,
    404: NoSession,
    409: WrongSequence,
    503: Busy,
}
BY_JOB_STATUS: Final[Kinds] = {401: WrongKey, 402: Exhausted, 404: NoJob, 409: JobConflict, 503: Busy}
BY_SPEAKER_STATUS: Final[Kinds] = {401: WrongKey, 502: EngineAway, 503: Busy}


def refused(status: int, message: str, kinds: Kinds = BY_STATUS) -> Refused:
    """Return the error of an answer."""
    return kinds.get(status, Refused)(status, message)
