"""A server whose answers never end: it is silent, trickles, or does not read requests."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

PAUSE: Final = 0.02
HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: %b\r\n\r\n"
SPACE: Final = b"1\r\n \r\n"
PING: Final = b"8\r\n: ping\n\n\r\n"


class SlowServer(socketserver.ThreadingTCPServer):
    """A server on a free port. It reads the head of a request, sends `head`, and then `piece` endlessly."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, head: bytes, piece: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.head = head
        self.piece = piece
        self.stopped = threading.Event()


class _Handler(socketserver.BaseRequestHandler):
    server: SlowServer

    def handle(self) -> None:
        with suppress(OSError):
            self.request.recv(4096)
            self.request.sendall(self.server.head)
            while not self.server.stopped.wait(PAUSE):
                self.request.sendall(self.server.piece)


@contextmanager
def slow_server(head: bytes = b"", piece: bytes = b"") -> Iterator[str]:
    """Serve while the block runs; yield the URL."""
    with SlowServer(head, piece) as server:
        thread = threading.Thread(target=server.serve_forever, args=(PAUSE,))
        thread.start()
        yield server.url
        server.stopped.set()
        server.shutdown()
        thread.join()
