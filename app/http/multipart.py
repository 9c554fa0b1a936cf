"""A form with texts and a file (RFC 7578), parsed as it arrives: the file is passed on, texts are kept."""

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.http.bodies import SMALL_BODY
from topics.errors import BadRequest

#: Longest filename and content type that are kept, in characters.
NAME_CHARACTERS: Final = 255
#: Bytes of text that are kept: one more than any use allows, so that the reader notices text that is too long.
_TEXT_BYTES: Final = SMALL_BODY + 1
#: A form with millions of parts would take minutes to parse.
MAX_PARTS: Final = 100
_QUOTED: Final = re.compile(rb'"(?:\\.|[^"\\])*"')
_EXTENDED: Final = re.compile(rb"""(?i);\s*filename\*\s*=\s*([!#-&+\-.^-~0-9a-z]+)'[^';\s]*'([!-:<-~]*)""")
_ESCAPED: Final = re.compile(rb"(?i)%(22|0d|0a)")


class Form:
    """A file and perhaps a text, each a part with its own name, in either order; other parts are ignored.

    Parts named in `fields` are texts, which may repeat. Together with the texts that are ignored, they are short. Texts
    named in `unread` are ignored at any length.
    """

    def __init__(
        self,
        content_type: bytes,
        file: str,
        take: Callable[[memoryview], None],
        text: str = "",
        fields: Collection[str] = (),
        unread: Collection[str] = (),
    ) -> None:
        """Read a form of this Content-Type; `take` gets the file as it arrives.

        Raises:
            BadRequest: it is not multipart/form-data with a boundary.
        """
        kind, parameters = parse_options_header(content_type)
        boundary = parameters.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise BadRequest("Content-Type: multipart/form-data with a boundary is required")
        self._file = file
        self._take = take
        self._names = {name for name in (file, text) if name}
        self._text = bytearray()
        self._fields = frozenset(fields)
        self._unread = frozenset(unread)
        #: The values of each field, and the memory left for more.
        self._values: dict[str, list[bytearray]] = {}
        self._room = SMALL_BODY
        self._parts = 0
        self._part = ""
        #: The current part counts towards the length of all texts.
        self._counts = False
        self._field: list[bytes] = []
        self._value: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._ended = False
        #: Names of the file and text parts received.
        self.seen: set[str] = set()
        #: Name and type of the file.
        self.filename = ""
        self.content_type = ""
        #: What precedes the first boundary, as far as it may hold the beginning of one; None after it.
        self._preamble: bytes | None = b"\n"
        self._opening = b"\n--" + boundary
        self._skipped = 0
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": lambda data, start, end: self._field.append(data[start:end]),
                    "on_header_value": lambda data, start, end: self._value.append(data[start:end]),
                    "on_header_end": self._header,
                    "on_headers_finished": self._headers_finished,
                    "on_part_data": self._data,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise BadRequest(f"Content-Type: {error}") from None

    def feed(self, block: bytes) -> None:
        """Parse the next bytes; errors of `take` pass through.

        Raises:
            BadRequest: the form is malformed, has too many parts or too long fields, or a part appears twice.
        """
        try:
            self._parser.write(block if self._preamble is None else self._after_preamble(block))
        except FormParserError as error:
            raise BadRequest(f"the body is not a multipart form: {error}") from None

    def _after_preamble(self, block: bytes) -> bytes:
        """Return what a block has from the first boundary on (RFC 2046)."""
        assert self._preamble is not None
        data = self._preamble + block
        at = data.find(self._opening)
        self._skipped += at if at >= 0 else len(block)
        if self._skipped > SMALL_BODY:
            raise BadRequest(f"the body is not a multipart form: its first {SMALL_BODY} bytes have no boundary")
        self._preamble = None if at >= 0 else data[-len(self._opening) :]
        return data[at + 1 :] if at >= 0 else b""

    def close(self) -> bytes:
        """End the form and return its text, or b"".

        Raises:
            BadRequest: it has no end.
        """
        if self._preamble is not None and self._skipped:
            raise BadRequest("the body is not a multipart form: it has no boundary")
        if not self._ended:
            raise BadRequest("the multipart form ends before its last boundary")
        # Break the reference cycles; otherwise the file's owner would wait for a full garbage collection.
        del self._parser, self._take
        return bytes(self._text)

    def values(self, field: str) -> list[str]:
        return [value.decode("utf-8", "replace") for value in self._values.get(field, ())]

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadRequest(f"the multipart form has more than {MAX_PARTS} parts")
        self._headers.clear()

    def _header(self) -> None:
        self._headers[b"".join(self._field).lower()] = b"".join(self._value)
        self._field.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        _, parameters = parse_options_header(disposition)
        self._part = _name(parameters.get(b"name", b""))
        filename = _filename(disposition, parameters)
        self._counts = filename is None and self._part not in self._unread
        if self._part in self._fields:
            self._values.setdefault(self._part, []).append(bytearray())
        if self._part not in self._names:
            return
        if self._part in self.seen:
            raise BadRequest(f"the part {self._part} appears twice")
        self.seen.add(self._part)
        if self._part == self._file:
            self.filename = filename or ""
            self.content_type = _name(self._headers.get(b"content-type", b""))

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part == self._file:
            self._take(memoryview(data)[start:end])
        elif self._part in self._names:
            self._text += data[start : min(end, start + _TEXT_BYTES - len(self._text))]
        elif self._part in self._fields or self._counts:
            self._room -= end - start
            if self._room < 0:
                raise BadRequest(f"the fields of the form are longer than {SMALL_BODY} bytes")
            if self._part in self._fields:
                self._values[self._part][-1] += data[start:end]

    def _end(self) -> None:
        self._ended = True


def _filename(disposition: bytes, parameters: dict[bytes, bytes]) -> str | None:
    """Return the name of a part's file, None if it has none.

    `filename*` (RFC 5987), which some clients send for names that are not ASCII, wins (RFC 6266). In `filename`,
    browsers write quotes and line breaks as %22, %0D and %0A, and every other character as it is.
    """
    if extended := _EXTENDED.search(_QUOTED.sub(b"", disposition)):
        charset, value = extended.groups()
        with suppress(LookupError):
            return unquote(value.decode("ascii"), charset.decode("ascii"), "replace")[:NAME_CHARACTERS]
    if b"filename" not in parameters:
        return None
    plain = _ESCAPED.sub(lambda escape: bytes([int(escape[1], 16)]), parameters[b"filename"])
    return _name(plain)


def _name(value: bytes) -> str:
    return value.decode("utf-8", "replace")[:NAME_CHARACTERS]
