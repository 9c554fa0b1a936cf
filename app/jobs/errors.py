"""Errors in the shapes of the job interface: `{error}`, and plain text."""

from typing import Final

from app.http.errors import Invalid
from app.http.replies import Reply, json_reply, phrase, reason_header, reply_of_bytes
from app.jobs.answers import JobFault
from topics.errors import AudioError, Conflict, DirectoryDown, EarshotError, NotFound, RequestError
from topics.folding import Verdict

_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")


def job_error(status: int, fault: EarshotError | None) -> Reply:
    """Return an error.

    Internal faults and unreadable audio are the plain text `Internal Server Error`; for audio, the header
    `Earshot-Reason` gives the cause.
    """
    if isinstance(fault, Invalid):
        return json_reply({"error": "Validation error", "details": fault.details}, status)
    if isinstance(fault, DirectoryDown) and not fault.uncertain:
        return json_reply(JobFault(str(fault)), 500)  # The contract's status of a key that cannot be verified.
    if status != 500:
        return json_reply(JobFault(phrase(status) if fault is None else str(fault)), status)
    reply = reply_of_bytes(status, _TEXT, b"Internal Server Error")
    if isinstance(fault, AudioError):
        reply.headers.append(reason_header(str(fault)))
    return reply


def refusal_error(verdict: Verdict) -> RequestError:
    """Return the error of a refused command."""
    return Conflict(verdict.error) if verdict.status == 409 else job_not_found()


def job_not_found() -> NotFound:
    """Return the error for a job that does not exist, was removed, or has another owner."""
    return NotFound("Not Found")
