"""All errors of the client, except OSError for a file that cannot be read.

EarshotClientError
├── DeadlineExceeded             the `timeout` of the call passed
├── ServiceUnreachable           the service did not answer any try
├── AudioRefused                 the audio cannot be analysed, in any call
│   ├── UnknownFormat            it is not a readable recording
│   └── SessionFailed            its session ended with an error
├── IncompleteList               a part of a list is on a node that does not answer now
├── JobDeleted                   the job was deleted before it ended
└── RequestRefused               the service answered with an error
    ├── SpeakerRequestRefused 200   a rule about speakers is broken; the service reports it with a success status
    ├── WrongKey              401
    ├── QuotaExceeded         402   the project's free seconds of the month are spent
    ├── SessionClosed         403   the session takes no more chunks
    ├── SessionNotFound       404   the session never existed, was deleted or has expired
    ├── JobNotFound           404   the job never existed, was deleted or has expired
    ├── SoundNotFound         404   the project has no such sound of its own, or no such job or session
    ├── AlarmNotFound         404   the project has no such alarm, rule or destination
    ├── WrongSequence         409   the chunk number is not the next one
    ├── SocketReplaced        409   another socket sends for the session now
    ├── JobConflict           409   the job has not ended, or the Idempotency-Key was used for another request
    ├── SoundConflict         409   the sound is not learnt, nothing was kept to learn from, or a limit is reached
    ├── AlarmConflict         409   a name is taken, a rule still sends to the destination, or a limit is reached
    ├── EngineUnavailable     502   the speaker engine does not answer
    └── ServiceBusy           503   the service was still busy at the last try
"""

from collections.abc import Mapping
from typing import Final


class EarshotClientError(Exception):
    """The base of all errors of this package."""


class DeadlineExceeded(EarshotClientError):
    """The `timeout` of the call passed.

    The service may or may not have carried out the last request. An accepted job goes on.
    """


class ServiceUnreachable(EarshotClientError):
    """No answer came, or none that this client understands. The service may or may not have carried out the request."""


class AudioRefused(EarshotClientError):
    """The audio cannot be analysed, in any call."""


class UnknownFormat(AudioRefused):
    """The recording is unreadable: of no kind that the service decodes, or damaged. Nothing was accepted."""


class IncompleteList(EarshotClientError):
    """A part of a list is on a node that does not answer now. The entries of the other nodes were yielded before."""


class SessionFailed(AudioRefused):
    """The session became readonly because of an error. The message is the service's."""


class JobDeleted(EarshotClientError):
    """The job was deleted before it ended, so it has no result. The message is the service's."""


class RequestRefused(EarshotClientError):
    """The service answered with an error.

    Attributes:
        status: the HTTP status, 400 to 599; 200 for a SpeakerRequestRefused.
        foreign: whether another program answered, such as a proxy before the service.
    """

    def __init__(self, status: int, message: str, foreign: bool = False) -> None:
        """Make the error for an HTTP status; `message` is the service's text."""
        super().__init__(message)
        self.status = status
        self.foreign = foreign


class SpeakerRequestRefused(RequestRefused):
    """A rule about speakers is broken: about names, recordings, or their number."""


class WrongKey(RequestRefused):
    """The key of the project or the organization is missing or invalid."""


class QuotaExceeded(RequestRefused):
    """The project's free seconds of the month are spent."""


class SessionClosed(RequestRefused):
    """The session takes no more chunks."""


class SessionNotFound(RequestRefused):
    """The session never existed, was deleted or has expired."""


class JobNotFound(RequestRefused):
    """The job never existed, was deleted or has expired, or belongs to another project."""


class SoundNotFound(RequestRefused):
    """The project has no such sound of its own, or no such job or session."""


class AlarmNotFound(RequestRefused):
    """The project has no such alarm, rule or destination."""


class WrongSequence(RequestRefused):
    """The chunk number is not the next one."""


class SocketReplaced(RequestRefused):
    """Another socket sends for the session now, so this one does not reconnect."""


class JobConflict(RequestRefused):
    """The job has not ended, or the Idempotency-Key was used for another request."""


class SoundConflict(RequestRefused):
    """The sound is not learnt, nothing was kept to learn from, or a limit is reached."""


class AlarmConflict(RequestRefused):
    """A name is taken, a rule still sends to the destination, or a limit is reached."""


class EngineUnavailable(RequestRefused):
    """The speaker engine does not answer."""


class ServiceBusy(RequestRefused):
    """The service was still busy at the last try."""


ErrorClasses = Mapping[int, type[RequestRefused]]

#: The class of each HTTP status, by what a request is about. All other statuses are RequestRefused.
SESSION_ERRORS: Final[ErrorClasses] = {
    401: WrongKey,
    403: SessionClosed,
    404: SessionNotFound,
    409: WrongSequence,
    503: ServiceBusy,
}
SOCKET_ERRORS: Final[ErrorClasses] = {**SESSION_ERRORS, 409: SocketReplaced}
JOB_ERRORS: Final[ErrorClasses] = {
    401: WrongKey,
    402: QuotaExceeded,
    404: JobNotFound,
    409: JobConflict,
    503: ServiceBusy,
}
OWN_SOUND_ERRORS: Final[ErrorClasses] = {**JOB_ERRORS, 404: SoundNotFound, 409: SoundConflict}
ALARM_ERRORS: Final[ErrorClasses] = {**JOB_ERRORS, 404: AlarmNotFound, 409: AlarmConflict}
SPEAKER_ERRORS: Final[ErrorClasses] = {401: WrongKey, 502: EngineUnavailable, 503: ServiceBusy}
