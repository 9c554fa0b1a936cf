"""The body of `/analyze`: a JSON object with the recording in base64, of any length that the deployment allows."""

import mmap
import string
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import pybase64

from app.http.faults import why_not_json
from app.http.uploads import UploadSpool
from app.jobs.options import AnalyzeFields, check_length, decoded, invalid
from topics.errors import AudioError, EarshotError, TooLarge

T = TypeVar("T")

#: Characters of base64 that are decoded at a time.
SLICE: Final = 1024 * 1024
_QUOTE: Final = ord('"')
_NOT_BASE64: Final = "the audio is not base64"

#: JSON that is not decoded yet: the objects made from JSON can be many times its size.
Field = msgspec.Raw | msgspec.UnsetType


class Body(msgspec.Struct):
    """Fields of the body, as raw JSON; other fields are ignored."""

    samplerate: Field = msgspec.UNSET
    audio: Field = msgspec.UNSET
    audio_data: Field = msgspec.UNSET
    data: Field = msgspec.UNSET
    options: Field = msgspec.UNSET
    content_type: Field = msgspec.UNSET
    filename: Field = msgspec.UNSET

    @property
    def recording(self) -> msgspec.Raw | None:
        """The audio, under the first of its names that is present."""
        return next((raw for raw in (self.audio, self.audio_data, self.data) if isinstance(raw, msgspec.Raw)), None)


_BODY: Final = msgspec.json.Decoder(Body)
_TEXT: Final = msgspec.json.Decoder(str)


def read_content(body: UploadSpool, interpret: Callable[[AnalyzeFields], T], audio: UploadSpool, limit: int) -> T:
    """Write the recording, at most `limit` bytes, to `audio`, and return the result of `interpret` for the fields.

    The body is memory-mapped; memory holds the recording once, as text. Errors of `interpret` pass through.

    Raises:
        Invalid: no JSON object, or a field is missing or of another type.
        AudioError: the audio is not base64.
        TooLarge: it is longer than `limit`.
    """
    try:
        return _read(body, interpret, audio, limit)
    except EarshotError as error:
        # Its frames hold the recording, and must not live as long as the error.
        error.__context__ = None
        raise error.with_traceback(None) from error.__cause__


def _read(body: UploadSpool, interpret: Callable[[AnalyzeFields], T], audio: UploadSpool, limit: int) -> T:
    if not body.size:
        raise invalid("missing", "required")
    content = _unread_body(mmap.mmap(body.fileno(), 0, access=mmap.ACCESS_READ))
    recording = content.recording
    request = interpret(decoded(AnalyzeFields, _without_recording(content)))
    assert recording is not None  # otherwise `audio` was missing
    _decode(_text(recording), audio, limit)
    return request


def _unread_body(body: mmap.mmap) -> Body:
    try:
        return _BODY.decode(body)
    except msgspec.ValidationError:
        message = "Input should be a valid dictionary or object to extract fields from"
        raise invalid("model_attributes_type", message) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid("json_invalid", f"JSON decode error: {why_not_json(body, error)}") from None


def _without_recording(content: Body) -> bytes:
    """Return the body as JSON with an empty text for the recording, or null if it is not a text."""
    members: list[tuple[str, bytes | memoryview]] = []
    for name in ("samplerate", "options", "content_type", "filename"):
        raw = getattr(content, name)
        if raw is not msgspec.UNSET:
            value = memoryview(raw)
            check_length(value[1:-1] if value[0] == _QUOTE else value, name)
            members.append((name, value))
    if content.recording is not None:
        members.append(("audio", b'""' if memoryview(content.recording)[0] == _QUOTE else b"null"))
    return b"{%s}" % b",".join(b'"%s":%s' % (name.encode("ascii"), text) for name, text in members)


def _text(recording: msgspec.Raw) -> str:
    try:
        return _TEXT.decode(recording)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise AudioError(_NOT_BASE64) from None


def _decode(text: str, audio: UploadSpool, limit: int) -> None:
    remainder, ended = b"", False
    for start in range(0, len(text), SLICE):
        try:
            # Some programs break base64 into lines.
            piece = text[start : start + SLICE].encode("ascii")
            letters = remainder + piece.translate(None, string.whitespace.encode())
            if ended and letters:
                raise ValueError
            whole = len(letters) // 4 * 4
            data = pybase64.b64decode(letters[:whole], validate=True)
        except ValueError:
            raise AudioError(_NOT_BASE64) from None
        if audio.size + len(data) > limit:
            raise TooLarge(f"the audio is longer than {limit} bytes")
        audio.write(data)
        remainder, ended = letters[whole:], ended or letters[:whole].endswith(b"=")
    if remainder:
        raise AudioError(_NOT_BASE64)
