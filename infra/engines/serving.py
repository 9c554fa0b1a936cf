"""Runs the engine server in this process: by itself, or as the child of a service."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import Final

import uvicorn

from infra.engines.server import create_app
from infra.engines.workers import Workers

#: Engines yield to live audio.
NICE: Final = 5
STOP_S: Final = 2


def serve(host: str, port: int) -> None:
    """Listen until SIGINT or SIGTERM."""
    Server(host, port).run()


def serve_child(descriptor: int) -> None:
    """Serve the listening socket that the parent made, until standard input ends: with the parent, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    server = Server()
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    threading.Thread(target=_stop_with_input, args=(server,), daemon=True).start()
    server.run([socket.socket(fileno=descriptor)])


def _stop_with_input(server: Server) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    server.should_exit = True
    time.sleep(2 * STOP_S)
    os._exit(1)


class Server(uvicorn.Server):
    """The HTTP server, whose end does not wait for recordings that are being recognised."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._workers = Workers()
        config = uvicorn.Config(
            create_app(self._workers),
            host=host,
            port=port,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # Who keeps a connection to a child that died would see its next request fail.
            headers=[("connection", "close")],
            timeout_graceful_shutdown=STOP_S,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; requests that wait for speech are answered 503."""
        await self._workers.close()
        await super().shutdown(sockets)
