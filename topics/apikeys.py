"""API keys: generation, detection of typing errors, storage and display.

A generated key is a typed prefix, 30 base62 characters (178 random bits), and the CRC-32 of both in 6 base62
characters. The checksum is no security measure; it lets the service reject mistyped keys without a look-up. Keys that
an operator chooses have any form and always need the look-up.
"""

import hashlib
import re
import secrets
import zlib
from enum import StrEnum
from typing import Final

from topics.keys import ALPHABET


class KeyKind(StrEnum):
    """The holder of a key; the value is the prefix of its keys."""

    PROJECT = "esp_"
    ORGANIZATION = "eso_"
    #: Temporary tokens: a browser's pass, a sign-in link, a link to a recording.
    PASS = "pass_"
    LINK = "link_"
    AUDIO = "audio_"


RANDOM_LENGTH: Final = 30
CHECK_LENGTH: Final = 6
#: Minimum length of a key that an operator chooses.
SHORTEST: Final = 20
#: Minimum number of different characters in the operator's key.
FEWEST_DIFFERENT: Final = 8
SHOWN: Final = 4

_GENERATED: Final = re.compile(rf"(?:{'|'.join(KeyKind)})[0-9A-Za-z]{{{RANDOM_LENGTH + CHECK_LENGTH}}}")


def new(kind: KeyKind) -> str:
    """Return a fresh key; show it once and keep only its `digest`."""
    body = kind + "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_LENGTH))
    return body + _check(body)


def well_formed(text: str) -> bool | None:
    """Return True for a generated key, False for a mistyped one, None for other forms, which need a look-up."""
    if not _GENERATED.fullmatch(text):
        return None
    return _check(text[:-CHECK_LENGTH]) == text[-CHECK_LENGTH:]


def fault(text: str) -> str | None:
    """Return why an operator may not choose `text` as a key, None if it is fine."""
    if len(text) < SHORTEST:
        return f"needs at least {SHORTEST} characters"
    if not (text.isascii() and text.isprintable()) or text != text.strip():
        return "must be printable ASCII characters without a space at either end, as in an HTTP header"
    if well_formed(text) is False:
        return "has the form of a generated key, but its checksum is wrong"
    return None


def weakness(text: str) -> str | None:
    """Return why `text` is too easy to guess as the operator's key, None if it is fine."""
    if text in (text + text)[1:-1]:
        return "repeats itself"
    if len(set(text)) < FEWEST_DIFFERENT:
        return f"needs at least {FEWEST_DIFFERENT} different characters"
    return None


def digest(key: str) -> bytes:
    """Return the SHA-256 of a key, for storage. A slow hash is only needed for guessable secrets."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def redact(key: str) -> str:
    """Return the visible part of a key: our prefix, if it has one, and the last four characters."""
    prefix = next((kind.value for kind in KeyKind if key.startswith(kind)), "")
    return f"{prefix}…{key[-SHOWN:] if len(key) >= SHORTEST else ''}"


def redact_all(text: str) -> str:
    """Return `text` with everything that looks like a generated key redacted."""
    return _GENERATED.sub(lambda key: redact(key.group()), text)


def _check(body: str) -> str:
    number = zlib.crc32(body.encode("ascii"))
    digits = []
    for _ in range(CHECK_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
