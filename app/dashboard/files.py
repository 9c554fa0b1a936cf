"""The files of the dashboard, read on first request, and their security headers."""

import gzip
import mimetypes
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from app.http.replies import Headers

DIRECTORY: Final = Path(__file__).parent / "static"

#: Scripts make sound and pictures with `blob:` URLs.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    # Browsers revalidate every time and mostly get 304, so an upgrade never leaves a page half old.
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
}


class StaticFile(msgspec.Struct, frozen=True):
    """A file, plain and compressed."""

    content: bytes
    packed: bytes
    etag: bytes
    #: A strong tag is of one sequence of bytes (RFC 9110, 8.8.3.3).
    packed_etag: bytes
    #: Media type.
    kind: str
    #: All other headers.
    headers: Headers


@cache
def names() -> frozenset[str]:
    """Return the files that are served, by path below the directory; excludes types that only checks read."""
    return frozenset(
        path.relative_to(DIRECTORY).as_posix()
        for path in DIRECTORY.rglob("*")
        if path.is_file() and path.suffix != ".mts"
    )


@cache
def read(name: str) -> StaticFile:
    """Return one of `names`."""
    path = DIRECTORY / name
    content = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    digest = blake2b(content, digest_size=12).hexdigest().encode("ascii")
    etag, packed_etag = b'"%s"' % digest, b'"%s-gzip"' % digest
    headers = [(key.encode(), value.encode()) for key, value in _HEADERS.items()]
    return StaticFile(content, gzip.compress(content, 9, mtime=0), etag, packed_etag, kind, headers)


def media_types() -> list[str]:
    return sorted({read(name).kind.partition(";")[0] for name in names()})
