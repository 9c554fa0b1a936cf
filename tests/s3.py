"""The part of S3 needed to store files: objects and multipart uploads in memory, without access control.

After the REST interface of Amazon S3 (API version 2006-03-01).
"""

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

_XML: Final = '<?xml version="1.0"?><{0} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{1}</{0}>'


class S3(ThreadingHTTPServer):
    """A server on a free port; `objects` are stored by path, `uploads` by path and number."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}


class _Handler(BaseHTTPRequestHandler):
    server: S3
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None: ...

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        return parts.path, {name: value for name, (value,) in parse_qs(parts.query, keep_blank_values=True).items()}

    def _answer(self, status: int, body: bytes = b"", length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("ETag", '"0"')
        self.send_header("Last-Modified", "Sun, 01 Nov 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        path, options = self._asked()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "partNumber" in options:
            self.server.uploads[path][int(options["partNumber"])] = body
        else:
            self.server.objects[path] = body
        self._answer(200)

    def do_POST(self) -> None:
        path, options = self._asked()
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if "uploads" in options:
            self.server.uploads[path] = {}
            self._answer(200, _XML.format("InitiateMultipartUploadResult", "<UploadId>1</UploadId>").encode())
        else:
            self.server.objects[path] = b"".join(body for _, body in sorted(self.server.uploads.pop(path).items()))
            self._answer(200, _XML.format("CompleteMultipartUploadResult", '<ETag>"0"</ETag>').encode())

    def do_GET(self) -> None:
        path, options = self._asked()
        if "list-type" in options:
            self._answer(200, _XML.format("ListBucketResult", "<KeyCount>0</KeyCount>").encode())
        elif path not in self.server.objects:
            self._answer(404, _XML.format("Error", "<Code>NoSuchKey</Code>").encode())
        elif found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or ""):
            self._answer(206, self.server.objects[path][int(found[1]) : int(found[2]) + 1])
        else:
            self._answer(200, self.server.objects[path])

    def do_HEAD(self) -> None:
        found = self.server.objects.get(self._asked()[0])
        self._answer(404 if found is None else 200, length=len(found or b""))

    def do_DELETE(self) -> None:
        path, options = self._asked()
        (self.server.uploads if "uploadId" in options else self.server.objects).pop(path, None)
        self._answer(204)
