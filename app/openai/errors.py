"""Errors in OpenAI's shape: `{error: {message, type, param, code}}`, as its public clients read them."""

from typing import Final, Literal

import msgspec

from app.http.replies import FINAL, Reply, json_reply, phrase
from topics.errors import AudioError, EarshotError, Exhausted, NotFound, RequestError, Unauthorized


class ParameterError(RequestError):
    """A parameter of the request is wrong or missing."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class UnknownModel(NotFound):
    parameter: Final = "model"


class UnreadableAudio(ParameterError):
    """The file contains no audio that can be analysed."""

    def __init__(self, fault: AudioError) -> None:
        super().__init__("file", f"the file cannot be read: {fault}")


class TranscriptionFailed(EarshotError):
    """The job has ended without a result."""

    def __init__(self, message: str, job: str) -> None:
        super().__init__(message)
        self.job = job


class OpenAIFault(msgspec.Struct, frozen=True):
    """A fault, in OpenAI's words."""

    message: str
    type: Literal["invalid_request_error", "insufficient_quota", "server_error"]
    #: The part of the form that is at fault.
    param: str | None
    code: Literal["invalid_api_key", "insufficient_quota", "model_not_found"] | None


class OpenAIError(msgspec.Struct, frozen=True):
    """An error of OpenAI's interface."""

    error: OpenAIFault


def job_header(job: str) -> tuple[bytes, bytes]:
    return b"earshot-job", job.encode("ascii")


def openai_error(status: int, fault: EarshotError | None) -> Reply:
    """Return an error; internal faults are not explained."""
    public = fault is not None and (status != 500 or isinstance(fault, TranscriptionFailed))
    message = str(fault) if public else phrase(status)
    reply = json_reply(error_object(message, status, fault), status)
    if isinstance(fault, TranscriptionFailed):
        # The official clients retry after a 500, but must not send the whole recording again for the same answer.
        reply.headers.extend((FINAL, job_header(fault.job)))
    return reply


def error_object(message: str, status: int, fault: EarshotError | None) -> OpenAIError:
    """Return the body of an error, which also stands in a stream of events."""
    return OpenAIError(
        OpenAIFault(
            message,
            "server_error" if status >= 500 else _KINDS.get(type(fault), "invalid_request_error"),
            getattr(fault, "parameter", None),
            _CODES.get(type(fault)),
        )
    )


_KINDS: Final[dict[type, Literal["insufficient_quota"]]] = {Exhausted: "insufficient_quota"}
_CODES: Final[dict[type, Literal["invalid_api_key", "insufficient_quota", "model_not_found"]]] = {
    Unauthorized: "invalid_api_key",
    Exhausted: "insufficient_quota",
    UnknownModel: "model_not_found",
}
