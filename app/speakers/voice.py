"""Requests that carry a recording of voices: received into the spool within the contract's bound, and judged.

The bound is 100 MB for a file. What is too large is not kept, and answered so that a client sees it that sends its
whole request before it reads: either at once, when the server throws away what still comes, or after it was read.
"""

from __future__ import annotations

import re
from typing import Final

from app.http.bodies import SMALL_BODY, Flood
from app.http.multipart import Form
from app.http.operation import Call
from app.http.uploads import Spool, receive
from topics.errors import RuleBroken, TooLarge

VOICE_BYTES: Final = 100 * 1024 * 1024
#: Largest body that is answered at once and then thrown away as it arrives; past it the connection is closed.
THROWN_AWAY: Final = 1024 * 1024 * 1024
#: Largest body that is read to its end, kept or not; past it the connection is closed.
READ: Final = 3 * VOICE_BYTES
NAME_CHARACTERS: Final = 100

_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_NO_FILE: Final = "file is required"
_TOO_LARGE: Final = "one of uploaded files is bigger than 100 MB"


class Overflow(Flood):
    """The recording is so long that the connection is closed; the status and the words are the contract's."""

    status_hint = 200


class Voice:
    """A recording and, where it is asked for, the name of the speaker, as they come in a form."""

    def __init__(self, call: Call, audio: Spool, name: str = "") -> None:
        """Read a form with the part `file`, into `audio`, and a text part `name`.

        Raises:
            BadRequest: it is no form.
            RuleBroken: it is none that could hold a file.
        """
        if not call.header(b"content-type").lower().startswith(b"multipart/form-data"):
            # Clients encode a form to which no file was given in another way.
            raise RuleBroken(_NO_FILE)
        self._call = call
        self._audio = audio
        self._overflows = False
        self._form = Form(call.header(b"content-type"), "file", self._take, text=name)

    async def read(self) -> str:
        """Read the request and return the text; errors of `Form` and `arriving` pass through.

        Raises:
            RuleBroken, Overflow: the file is too large.
        """
        _refuse_early(self._call)
        try:
            await receive(self._call, READ, self._form.feed)
        except TooLarge as error:
            raise Overflow(_TOO_LARGE) from error
        if self._overflows:
            raise RuleBroken(_TOO_LARGE)
        return self._form.close().decode("latin-1")

    def check_file(self) -> None:
        """Raise RuleBroken where the form holds no file, or an empty one."""
        if "file" not in self._form.seen:
            raise RuleBroken(_NO_FILE)
        if not self._audio.size:
            raise RuleBroken("an empty file")

    def _take(self, data: memoryview) -> None:
        self._overflows = self._overflows or self._audio.size + len(data) > VOICE_BYTES
        if not self._overflows:
            self._audio.write(data)


def check_name(speaker: str) -> str:
    """Return the name of a speaker if it can be one.

    Raises:
        RuleBroken: it has other characters than allowed, none, or too many.
    """
    if not _NAME.fullmatch(speaker):
        raise RuleBroken("speaker is invalid. only alphabet, number and underscore are allowed")
    if len(speaker) > NAME_CHARACTERS:
        raise RuleBroken(f"speaker is invalid. at most {NAME_CHARACTERS} characters are allowed")
    return speaker


def _refuse_early(call: Call) -> None:
    """Refuse a body whose declared length is too large before any of it is read.

    Not on a connection that ends with the answer: what is on its way then would make the client's system drop it.
    """
    declared = call.header(b"content-length")
    length = int(declared[:20]) if declared.isdigit() else 0
    if length > THROWN_AWAY:
        raise Overflow(_TOO_LARGE)
    ends = call.scope.get("http_version") == "1.0" or b"close" in call.header(b"connection").lower()
    if length > VOICE_BYTES + SMALL_BODY and not ends:
        raise RuleBroken(_TOO_LARGE)
