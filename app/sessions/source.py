"""What clients tell of a source: when its audio was captured, and what happened to it."""

import time
from datetime import datetime
from typing import Final

from app.http.call import Call
from topics import media
from topics.errors import BadRequest
from topics.ports.sessions import SessionView
from topics.times import DAY_MS, HOUR_MS, iso_time

#: The header that tells when a chunk was captured, and the one that says why the service does not believe it.
CAPTURED_AT: Final = "Earshot-Captured-At"
WARNING: Final = "Earshot-Warning"
_CAPTURED_AT: Final = CAPTURED_AT.lower().encode()
#: How far (ms) a time may be off the service's clock, and how far back it may be if the client spooled the audio.
MOST_OFF_MS: Final = HOUR_MS
SPOOLED_MS: Final = 7 * DAY_MS


def read_time(name: str, text: str) -> int:
    """Return a time in RFC 3339 as Unix time in ms.

    Raises:
        BadRequest: it is not a time with a zone; names the field.
    """
    try:
        told = datetime.fromisoformat(text)
        if told.tzinfo is not None:
            return round(told.timestamp() * 1000)
    except (ValueError, OverflowError):
        pass
    raise BadRequest(f"{name}: {text[:40]!r} is not a time with its zone, such as 2026-11-30T08:00:00.123Z")


def doubt(name: str, at_ms: int, spooled: bool) -> str | None:
    """Return why the service does not take a time that a client tells, or None."""
    now = round(time.time() * 1000)
    if now - (SPOOLED_MS if spooled else MOST_OFF_MS) <= at_ms <= now + MOST_OFF_MS:
        return None
    allowed = "more than 7 days before or an hour after" if spooled else "more than an hour off"
    return f"{name}: the time is {allowed} the service's clock, which is at {iso_time(now)}; it is left out"


def check_raw(name: str, content_type: str) -> None:
    """Raise BadRequest unless a session has raw PCM: only its bytes say where in the audio a chunk begins."""
    if not media.is_raw(content_type):
        raise BadRequest(f"{name}: only chunks of raw PCM can have a time, and this session is {content_type[:80]}")


def captured_at(call: Call, view: SessionView) -> tuple[int, str | None]:
    """Return when the chunk of a request was captured (Unix ms), 0 if unknown, and a warning.

    Raises:
        BadRequest: the header is no time, or the session is not raw PCM.
    """
    if not (value := call.header(_CAPTURED_AT)):
        return 0, None
    text, _, parameter = (part.strip() for part in value.decode("latin-1").partition(";"))
    if parameter not in ("", "spooled"):
        raise BadRequest(f"{CAPTURED_AT}: {parameter[:40]!r} is not known; a time may be followed by `; spooled`")
    check_raw(CAPTURED_AT, view.opened.content_type)
    at = read_time(CAPTURED_AT, text)
    warning = doubt(CAPTURED_AT, at, parameter == "spooled")
    return (0 if warning else at), warning
