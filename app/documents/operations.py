"""Operations that serve the documents. Each document is built at its first request, then cached, and has an ETag."""

import asyncio
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from app.http.call import Call
from app.http.descriptions import Answer, Description, Parameter, operation, operations_of
from app.http.replies import JSON, Reply, reply_unless_known
from app.http.resource import Part
from app.parts import SERVICE

PAGES: Final = Path(__file__).parent / "pages"
#: Scripts, styles and documents come from this origin; the page loads, sends and frames nothing else.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_PAGE_HEADERS: Final = [
    (b"content-security-policy", POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_HTML: Final = (b"content-type", b"text/html; charset=utf-8")
_SCRIPT: Final = (b"content-type", b"text/javascript; charset=utf-8")
_STYLE: Final = (b"content-type", b"text/css; charset=utf-8")


class Document(msgspec.Struct, frozen=True):
    body: bytes
    etag: bytes


class Documents:
    """The documents of one deployment, each built once."""

    def __init__(self, build: Callable[[str], bytes]) -> None:
        self._build = build
        self._made: dict[str, Document] = {}
        self._lock = asyncio.Lock()

    async def document(self, name: str) -> Document:
        """Return a document; the first request builds it in a thread, while others wait."""
        async with self._lock:
            if name not in self._made:
                body = await asyncio.to_thread(self._build, name)
                self._made[name] = Document(body, b'"%s"' % blake2b(body, digest_size=8).hexdigest().encode("ascii"))
            return self._made[name]


class DocumentContext(msgspec.Struct, frozen=True):
    documents: Documents


_TAG: Final = {"ETag": "In `If-None-Match` it makes the answer 304 while nothing has changed."}
_SEEN: Final = Parameter(
    "If-None-Match", "header", str, "The `ETag` of an earlier answer.", example='"0123456789abcdef"'
)


def _document(route: str) -> Description:
    return operation(
        route,
        parameters=(_SEEN,),
        answers={
            200: Answer("The document.", (dict[str, Any],), {}, headers=_TAG),
            304: Answer("Not modified.", headers=_TAG),
        },
    )


def _page(route: str, media: str) -> Description:
    policy = {"Content-Security-Policy": "Nothing is loaded, run or called from elsewhere."}
    return operation(
        route,
        parameters=(_SEEN,),
        answers={
            200: Answer("The file.", (str,), {}, media=media, headers={**_TAG, **policy}),
            304: Answer("Not modified.", headers={**_TAG, **policy}),
        },
    )


@_document("GET /openapi.json")
async def openapi(call: Call, context: DocumentContext) -> Reply:
    """Read this document.

    The whole interface. `x-origin` says who defined an operation first.
    """
    return await _reply(call, context, "openapi", JSON)


@_document("GET /audio_sessions/openapi.json")
async def sessions_openapi(call: Call, context: DocumentContext) -> Reply:
    """Read the document of audio sessions.

    Only the session interface, with its specification's version, 1.1.0.
    """
    return await _reply(call, context, "sessions", JSON)


@_document("GET /asyncapi.json")
async def asyncapi(call: Call, context: DocumentContext) -> Reply:
    """Read the document of the log.

    AsyncAPI 3.0: the topics of the log and their records.
    """
    return await _reply(call, context, "asyncapi", JSON)


@_page("GET /docs", "text/html")
async def page(call: Call, context: DocumentContext) -> Reply:
    """Read and try the interface in a browser."""
    return await _file(call, context, "page.html", _HTML)


@_page("GET /docs/page.js", "text/javascript")
async def script(call: Call, context: DocumentContext) -> Reply:
    """The script of the page."""
    return await _file(call, context, "page.js", _SCRIPT)


@_page("GET /docs/page.css", "text/css")
async def style(call: Call, context: DocumentContext) -> Reply:
    """The style of the page."""
    return await _file(call, context, "page.css", _STYLE)


def page_file(name: str) -> bytes:
    return (PAGES / name).read_bytes()


async def _file(call: Call, context: DocumentContext, name: str, content_type: tuple[bytes, bytes]) -> Reply:
    reply = await _reply(call, context, name, content_type)
    reply.headers.extend(_PAGE_HEADERS)
    return reply


async def _reply(call: Call, context: DocumentContext, name: str, content_type: tuple[bytes, bytes]) -> Reply:
    document = await context.documents.document(name)
    known = call.header(b"if-none-match")
    return reply_unless_known(known, document.etag, content_type, document.body, [(b"cache-control", b"no-cache")])


DOCUMENTS: Final = Part[DocumentContext](
    name=SERVICE.name, text=SERVICE.text, operations=operations_of(sys.modules[__name__])
)
