"""JSON whose audio is one long text in base64: the text is found and decoded in pieces, without a decoder of JSON.

A decoder holds the interpreter lock until it has read everything, so that a thread does not help the others. Here it
never gets more than `REST` bytes at a time.
"""

import re
from collections.abc import Iterator, Sequence
from mmap import mmap
from typing import Final

import msgspec
import pybase64

from app.http.faults import NOT_JSON
from topics.errors import BadRequest

#: Bytes of a text from which on it is long, of the JSON without its long texts, and of a piece of a long text.
LONG: Final = 64 * 1024
REST: Final = 256 * 1024
PIECE: Final = 256 * 1024
#: Bytes in which the end of a text is looked for first: most texts are short.
_FIRST: Final = 256
TOO_MUCH: Final = f"body: more than {REST} bytes besides the audio"

_TEXT: Final = msgspec.json.Decoder(str)
_SPACE: Final = b" \t\r\n\v\f"
#: At the end of a piece: an incomplete escape, or the first half of a surrogate pair.
_CUT: Final = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z|\\u[dD][89abAB][0-9a-fA-F]{2}\\?(?:u[0-9a-fA-F]{0,3})?\Z")
_TAIL: Final = 12


def without_long_texts(body: bytes | mmap) -> tuple[bytes, Sequence[range]]:
    """Return JSON with a mark in place of each long text, and where in the body these texts are.

    Raises:
        NOT_JSON: it is not JSON.
        BadRequest: it is longer than `REST`, even so.
    """
    if len(body) <= REST:
        return body[:], ()
    parts: list[bytes] = []
    texts: list[range] = []
    at = size = 0
    while size <= REST and (quote := body.find(b'"', at, at + REST)) >= 0:
        end = _end_of_text(body, quote + 1)
        if end - quote > LONG:
            parts.append(body[at:quote] + b'"\\u0000%d"' % len(texts))
            texts.append(range(quote + 1, end))
        else:
            parts.append(body[at : end + 1][:REST])
        at, size = end + 1, size + len(parts[-1])
    rest = b"".join((*parts, body[at : at + REST]))
    if len(rest) <= REST and at + REST >= len(body):
        return rest, texts
    try:
        msgspec.json.decode(rest[:REST], type=msgspec.Raw)
    except NOT_JSON as error:
        if "truncated" not in str(error):
            raise
    raise BadRequest(TOO_MUCH)


def base64_pieces(body: bytes | mmap, text: str, texts: Sequence[range]) -> Iterator[bytes]:
    """Decode base64, which may be broken into lines, from a text of the JSON that `without_long_texts` returned.

    Raises:
        ValueError: it is not base64.
    """
    remainder, ended = b"", False
    for letters in _pieces(body, text, texts):
        letters = remainder + letters.translate(None, _SPACE)
        if ended and letters:
            raise ValueError
        whole = len(letters) // 4 * 4
        yield pybase64.b64decode(letters[:whole], validate=True)
        remainder, ended = letters[whole:], ended or letters[:whole].endswith(b"=")
    if remainder:
        raise ValueError


def _pieces(body: bytes | mmap, text: str, texts: Sequence[range]) -> Iterator[bytes]:
    """Yield a text of ASCII letters, which may be one that a mark stands for."""
    if not (text.startswith("\0") and text[1:].isdecimal() and int(text[1:]) < len(texts)):
        for at in range(0, len(text), PIECE):
            yield text[at : at + PIECE].encode("ascii")
        return
    place = texts[int(text[1:])]
    at = place.start
    while at < place.stop:
        piece = body[at : min(at + PIECE, place.stop)]
        if at + len(piece) < place.stop and (cut := _CUT.search(_paired(piece), len(piece) - _TAIL)) is not None:
            piece = piece[: cut.start()]
        yield _TEXT.decode(b'"%s"' % piece).encode("ascii")
        at += len(piece)


def _end_of_text(body: bytes | mmap, at: int) -> int:
    """Return where the quote is that ends a text, or the end of the body."""
    size = _FIRST
    while at < len(body):
        quote = body.find(b'"', at, at + size)
        if quote >= 0 and body.find(b"\\", at, quote) < 0:
            return quote
        piece = body[at : at + size]
        plain = _paired(piece)
        if (quote := plain.replace(b'\\"', b"__").find(b'"')) >= 0:
            return at + quote
        # An escape must not be cut.
        at += len(piece) - (plain.endswith(b"\\") and len(piece) > 1)
        size = min(2 * size, PIECE)
    return len(body)


def _paired(piece: bytes) -> bytes:
    """Return a piece of a text without escaped backslashes, so that each backslash left begins an escape."""
    return piece.replace(b"\\\\", b"__") if b"\\" in piece else piece
