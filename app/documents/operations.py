"""Operations that serve the documents. Each document is built at its first request, then cached, and has an ETag."""

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from app.http.call import Call
from app.http.replies import JSON, Reply, reply_unless_known
from app.http.resource import Table

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


async def openapi(call: Call, context: DocumentContext) -> Reply:
    """GET /openapi.json: the whole interface."""
    return await _reply(call, context, "openapi", JSON)


async def sessions_openapi(call: Call, context: DocumentContext) -> Reply:
    """GET /audio_sessions/openapi.json: only the session interface."""
    return await _reply(call, context, "sessions", JSON)


async def asyncapi(call: Call, context: DocumentContext) -> Reply:
    """GET /asyncapi.json: the topics of the log and their records."""
    return await _reply(call, context, "asyncapi", JSON)


async def page(call: Call, context: DocumentContext) -> Reply:
    """GET /docs: a page to read and try the interface."""
    return await _file(call, context, "page.html", _HTML)


async def script(call: Call, context: DocumentContext) -> Reply:
    return await _file(call, context, "page.js", _SCRIPT)


async def style(call: Call, context: DocumentContext) -> Reply:
    return await _file(call, context, "page.css", _STYLE)


DOCUMENT_ROUTES: Final[Table[DocumentContext]] = {
    "/openapi.json": {"GET": openapi},
    "/audio_sessions/openapi.json": {"GET": sessions_openapi},
    "/asyncapi.json": {"GET": asyncapi},
    "/docs": {"GET": page},
    "/docs/page.js": {"GET": script},
    "/docs/page.css": {"GET": style},
}


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
