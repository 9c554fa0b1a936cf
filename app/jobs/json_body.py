"""The body of `/analyze`: a JSON object with the recording in base64, of any length that the deployment allows."""

import mmap
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from app.http.faults import NOT_JSON, why_not_json
from app.http.long_texts import REST, base64_pieces, without_long_texts
from app.http.uploads import UploadSpool
from app.jobs.options import AnalyzeFields, check_length, decoded, invalid
from topics.errors import AudioError, BadRequest, TooLarge

T = TypeVar("T")

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
_FIELDS: Final = msgspec.json.Decoder(AnalyzeFields)
_TEXT: Final = msgspec.json.Decoder(str)


def read_content(body: UploadSpool, interpret: Callable[[AnalyzeFields], T], audio: UploadSpool, limit: int) -> T:
    """Write the recording, at most `limit` bytes, to `audio`, and return the result of `interpret` for the fields.

    The body is memory-mapped. Errors of `interpret` pass through.

    Raises:
        Invalid: no JSON object, or a field is missing or of another type.
        AudioError: the audio is not base64.
        TooLarge: it is longer than `limit`.
    """
    if not body.size:
        raise invalid("missing", "required")
    with mmap.mmap(body.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        content, texts = _unread_body(whole)
        recording = content.recording
        request = interpret(decoded(_FIELDS, _without_recording(content)))
        assert recording is not None  # otherwise `audio` was missing
        try:
            for data in base64_pieces(whole, _TEXT.decode(recording), texts):
                if audio.size + len(data) > limit:
                    raise TooLarge(f"the audio is longer than {limit} bytes")
                audio.write(data)
        except (msgspec.DecodeError, ValueError):
            raise AudioError(_NOT_BASE64) from None
    return request


def _unread_body(body: mmap.mmap) -> tuple[Body, Sequence[range]]:
    try:
        rest, texts = without_long_texts(body)
        return _BODY.decode(rest), texts
    except BadRequest as error:
        raise invalid("too_long", str(error)) from None
    except msgspec.ValidationError:
        message = "Input should be a valid dictionary or object to extract fields from"
        raise invalid("model_attributes_type", message) from None
    except NOT_JSON as error:
        raise invalid("json_invalid", f"JSON decode error: {why_not_json(body[:REST], error)}") from None


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
