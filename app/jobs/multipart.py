"""A form with options and audio (RFC 7578), read as it arrives: the audio passes through, the options are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.jobs.options import OPTIONS_BYTES, invalid, too_long
from topics.errors import BadRequest

#: Longest filename and content type that are kept, in characters.
NAME_CHARACTERS: Final = 255


class Form:
    """The parts `options` and `audio`, in either order; parts of other names are passed over."""

    def __init__(self, content_type: bytes, audio: Callable[[memoryview], None]) -> None:
        """Read a form of this Content-Type; `audio` is given the audio as it comes.

        Raises:
            BadRequest: it is not multipart/form-data with a boundary.
        """
        kind, parameters = parse_options_header(content_type)
        boundary = parameters.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise BadRequest("Content-Type: multipart/form-data with a boundary is required")
        self._audio = audio
        self._options: list[bytes] = []
        self._seen: set[bytes] = set()
        self._part = b""
        self._field: list[bytes] = []
        self._value: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._ended = False
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
                    "on_headers_finished": self._named,
                    "on_part_data": self._data,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise BadRequest(f"Content-Type: {error}") from None

    def feed(self, block: bytes) -> None:
        """Read the next bytes; errors of `audio` pass through.

        Raises:
            BadRequest: they are no such form, or a part is there twice.
            Invalid: the options are too long.
        """
        try:
            self._parser.write(block)
        except FormParserError as error:
            raise BadRequest(f"the body is no multipart form: {error}") from None

    def close(self) -> bytes:
        """End the form and return its options.

        Raises:
            BadRequest: it has no end.
            Invalid: a part is missing.
        """
        if not self._ended:
            raise BadRequest("the multipart form breaks off before its last boundary")
        for part in (b"options", b"audio"):
            if part not in self._seen:
                raise invalid("missing", "Field required", part.decode())
        return b"".join(self._options)

    def _begin(self) -> None:
        self._headers.clear()

    def _header(self) -> None:
        self._headers[b"".join(self._field).lower()] = b"".join(self._value)
        self._field.clear()
        self._value.clear()

    def _named(self) -> None:
        _, parameters = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._part = parameters.get(b"name", b"")
        if self._part not in (b"options", b"audio"):
            return
        if self._part in self._seen:
            raise BadRequest(f"the part {self._part.decode()} is there twice")
        self._seen.add(self._part)
        if self._part == b"audio":
            self.filename = _text(parameters.get(b"filename", b""))
            self.content_type = _text(self._headers.get(b"content-type", b""))

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part == b"audio":
            self._audio(memoryview(data)[start:end])
        elif self._part == b"options":
            self._options.append(data[start:end])
            if sum(map(len, self._options)) > OPTIONS_BYTES:
                raise too_long("options")

    def _end(self) -> None:
        self._ended = True


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")[:NAME_CHARACTERS]
