"""Helpers for httpx2 that both connections use; httpx2 is loaded with the first client."""

from collections.abc import Mapping
from typing import Final

import httpx2

from ._calls import Answer, Call, NoAnswer, Upload
from ._errors import ServiceUnreachable

#: Seconds to connect.
CONNECT_LIMIT: Final = 5.0
#: Seconds without a byte of an answer. The service may hold a session read for about nine.
READ_LIMIT: Final = 30.0
#: The same for an upload, because storing fast input may take the service a while.
UPLOAD_LIMIT: Final = 600.0
NO_URL: Final = "the URL of a service begins with http:// or https://, unlike {!r}"


def check_open(client: httpx2.Client | httpx2.AsyncClient) -> None:
    """Raise ValueError if a client was closed."""
    if client.is_closed:
        raise ValueError("the client is closed")


def limits(call: Call, left: float | None = None) -> httpx2.Timeout:
    """Return the timeout of each operation of a request, with `left` seconds left for all of them."""
    longest = UPLOAD_LIMIT if call.upload else READ_LIMIT
    if left is None:
        return httpx2.Timeout(longest, connect=CONNECT_LIMIT)
    return httpx2.Timeout(min(longest, left), connect=min(CONNECT_LIMIT, left))


def multipart(upload: Upload) -> httpx2.Request:
    """Return a request with the headers and stream of an upload. The file is read with the stream."""
    file = (upload.name, upload.file, upload.content_type)
    return httpx2.Request("POST", "http://upload", data=upload.fields, files={upload.part: file})


def upload_headers(request: httpx2.Request) -> dict[str, str]:
    """Return the headers that belong to the body of a request."""
    return {name: request.headers[name] for name in ("Content-Type", "Content-Length") if name in request.headers}


def answer(response: httpx2.Response) -> Answer:
    """Convert a response that was read to an `Answer`."""
    return answer_of(response.status_code, response.content, response.headers)


def answer_of(status: int, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Return an `Answer`; the names of `headers` must not depend on case."""
    try:
        wait = float(headers.get("Retry-After", 0))
    except ValueError:
        # The header's other form is a date; then our own pauses apply.
        wait = 0.0
    final = headers.get("X-Should-Retry") == "false"
    return Answer(status, body, wait, headers.get("Earshot-Reason", ""), headers.get("Location", ""), final)


def no_answer(error: httpx2.RequestError) -> NoAnswer:
    """Return a failed request as a value.

    Raises:
        ServiceUnreachable: no try can get an answer.
    """
    if isinstance(error, httpx2.UnsupportedProtocol):
        raise ServiceUnreachable(NO_URL.format(error.request.url))
    return NoAnswer(str(error) or type(error).__name__)
