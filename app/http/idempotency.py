"""The Idempotency-Key header, which marks a request as a repetition of an earlier one."""

from typing import Final

from app.http.call import Call
from topics.errors import BadRequest

KEY_LENGTH: Final = 255


def idempotency_key(call: Call) -> bytes:
    """Return the Idempotency-Key of a request, or b"".

    Raises:
        BadRequest: it is too long.
    """
    key = call.header(b"idempotency-key")
    if len(key) > KEY_LENGTH:
        raise BadRequest(f"Idempotency-Key: longer than {KEY_LENGTH} characters")
    return key
