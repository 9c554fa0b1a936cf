"""A form with texts and a file (RFC 7578), parsed as it arrives: the file is passed on, texts are kept."""

from collections.abc import Callable, Collection
from typing import Final

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
            self._parser.write(block)
        except FormParserError as error:
            raise BadRequest(f"the body is not a multipart form: {error}") from None

    def close(self) -> bytes:
        """End the form and return its text, or b"".

        Raises:
            BadRequest: it has no end.
        """
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
        _, parameters = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._part = _name(parameters.get(b"name", b""))
        self._counts = b"filename" not in parameters and self._part not in self._unread
        if self._part in self._fields:
            self._values.setdefault(self._part, []).append(bytearray())
        if self._part not in self._names:
            return
        if self._part in self.seen:
            raise BadRequest(f"the part {self._part} appears twice")
        self.seen.add(self._part)
        if self._part == self._file:
            self.filename = _name(parameters.get(b"filename", b""))
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


def _name(value: bytes) -> str:
    return value.decode("utf-8", "replace")[:NAME_CHARACTERS]
