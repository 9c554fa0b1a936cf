"""The envelope of the speaker interface, `{data, error, debug}`, and its errors in the contract's words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeVar

from app.http.replies import Reply, json_reply, phrase, reason_header
from app.speakers.answers import SpeakerFault
from topics.errors import AudioError, AudioTooLong, EarshotError, EngineAway, RuleBroken, Unavailable

T = TypeVar("T")

#: The message of an operation while the speaker engine is unavailable.
REGISTRATION: Final = "speaker service unavailable"
RECOGNITION: Final = "recognition service unavailable"
TOO_LONG: Final = "audio length is longer than 10 minutes"


def success(envelope: Callable[[T, Literal[""], str], object], data: T) -> Reply:
    """Return a success; its `error` must be text, because a null makes the vendor's client raise."""
    return json_reply(envelope(data, "", ""))


def speaker_error(status: int, fault: EarshotError | None) -> Reply:
    """Return an error; the only internal failure it names is a key store that is down."""
    public = fault is not None and status != 500
    message = str(fault) if public else phrase(status)
    reply = json_reply(SpeakerFault(None, message, ""), status)
    cause = None if fault is None else fault.__cause__
    if isinstance(cause, AudioError) and not isinstance(cause, AudioTooLong):
        # The status alone does not distinguish unreadable audio from a broken rule.
        reply.headers.append(reason_header(str(cause)))
    return reply


@contextmanager
def recording_errors(away: str) -> Iterator[None]:
    """Translate errors of a recording, or of the engine that analyses it, into the contract's words.

    Raises:
        RuleBroken: for AudioTooLong and AudioError.
        EngineAway: for another EngineAway, with the message `away`; its cause is for the log.
        Unavailable: for an OSError of the spool.
    """
    try:
        yield
    except AudioTooLong as error:
        raise RuleBroken(TOO_LONG) from error
    except AudioError as error:
        raise RuleBroken(str(error)) from error
    except EngineAway as error:
        raise EngineAway(away) from error
    except OSError as error:
        raise Unavailable("the audio cannot be kept now", retry_after=10) from error
