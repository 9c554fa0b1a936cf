"""Requests with a recording of voices: received into the spool within the contract's bound, and checked.

The bound is 100 MB for a file. A larger file is not kept. It is answered so that a client that sends its whole request
before it reads sees the answer: either at once, while the server discards the rest, or after it was read.
"""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from app.http.bodies import SMALL_BODY, declared_length
from app.http.call import Call
from app.http.errors import TooLargeToRead
from app.http.multipart import Form
from app.http.uploads import Uploads, UploadSpool
from topics.errors import BadRequest, RuleBroken, TooLarge

VOICE_BYTES: Final = 100 * 1024 * 1024
#: Largest body that is answered at once and then discarded as it arrives; for a larger one, the connection is closed.
THROWN_AWAY: Final = 1024 * 1024 * 1024
#: Largest body that is read to its end, kept or not; for a larger one, the connection is closed.
READ: Final = 3 * VOICE_BYTES
NAME_CHARACTERS: Final = 100

NAME: Final = re.compile(r"[A-Za-z0-9_]+")
NO_FILE: Final = "file is required"
EMPTY_FILE: Final = "an empty file"
TOO_LARGE: Final = "one of uploaded files is bigger than 100 MB"


class VoiceTooLarge(RuleBroken, TooLargeToRead):
    """The recording breaks the size rule and is so long that the connection is closed."""


class VoiceForm:
    """A recording from a form and, for a registration, the name of the speaker."""

    def __init__(self, call: Call, audio: UploadSpool, name: str = "") -> None:
        """Read a form with the part `file` into `audio`, and a text part `name`.

        Raises:
            BadRequest: it is not a form.
            RuleBroken: this kind of form cannot contain a file.
        """
        if not call.header(b"content-type").lower().startswith(b"multipart/form-data"):
            # Clients encode a form without a file in another way.
            raise RuleBroken(NO_FILE)
        self._call = call
        self._audio = audio
        self._too_large = False
        self._form = Form(call.header(b"content-type"), "file", self._take, text=name)

    async def read(self, uploads: Uploads) -> str:
        """Read the request and return the text.

        Raises:
            RuleBroken, VoiceTooLarge: the file is too large.
            BadRequest: the form is malformed, has too many parts, or a part appears twice.
            RequestTimeout, ClientGone: the body cannot be read.
        """
        _refuse_early(self._call)
        try:
            await uploads.receive(self._call, READ, self._form.feed)
        except TooLarge as error:
            raise VoiceTooLarge(TOO_LARGE) from error
        if self._too_large:
            raise RuleBroken(TOO_LARGE)
        return self._form.close().decode("latin-1")

    def check_file(self) -> None:
        """Raise RuleBroken if the form has no file, or an empty one."""
        if "file" not in self._form.seen:
            raise RuleBroken(NO_FILE)
        if not self._audio.size:
            raise RuleBroken(EMPTY_FILE)

    def _take(self, data: memoryview) -> None:
        self._too_large = self._too_large or self._audio.size + len(data) > VOICE_BYTES
        if not self._too_large:
            self._audio.write(data)


def check_name(speaker: str) -> str:
    """Return the name of a speaker if it is valid.

    Raises:
        RuleBroken: it has disallowed characters, none, or too many.
    """
    if not NAME.fullmatch(speaker):
        raise RuleBroken("speaker is invalid. only alphabet, number and underscore are allowed")
    if len(speaker) > NAME_CHARACTERS:
        raise RuleBroken(f"speaker is invalid. at most {NAME_CHARACTERS} characters are allowed")
    return speaker


class SpeakerNaming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What people call a speaker."""

    display_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS)] | None,
        Meta(description="Any printable characters without a space at either end; null for the name itself."),
    ]


NAMING: Final = msgspec.json.Decoder(SpeakerNaming)


def check_display_name(text: str | None) -> str | None:
    """Return what people call a speaker, if it can be shown in one line.

    Raises:
        BadRequest: it cannot.
    """
    if text is not None and (not text.isprintable() or text != text.strip()):
        raise BadRequest("display_name: has printable characters and no space at either end")
    return text


def _refuse_early(call: Call) -> None:
    """Refuse a body whose declared length is too large before any of it is read.

    Not on a connection that ends with the answer: with data still arriving, the client's system would drop the answer.
    """
    length = declared_length(call.header(b"content-length"))
    if length > THROWN_AWAY:
        raise VoiceTooLarge(TOO_LARGE)
    ends = call.scope.get("http_version") == "1.0" or b"close" in call.header(b"connection").lower()
    if length > VOICE_BYTES + SMALL_BODY and not ends:
        raise RuleBroken(TOO_LARGE)
