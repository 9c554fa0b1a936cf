"""Runs the engine server in this process, alone or as the child of a service."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Final

import uvicorn

from infra.engines.server import create_app
from infra.engines.speech.speech_models import SpeechModels, SpeechSettings
from topics.errors import EarshotError

#: Live audio has priority over engines.
NICE: Final = 5
STOP_S: Final = 2


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        EarshotError: this address cannot be used.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise EarshotError(f"cannot listen at {host}: {error.strerror}") from None


def serve(listener: socket.socket, speech: SpeechSettings, key: str | None = None) -> None:
    """Serve until SIGINT or SIGTERM; with a key, refuse requests without it."""
    EngineHttpServer(speech, key).run([listener])


def serve_child(descriptor: int, speech: SpeechSettings) -> None:
    """Serve the parent's listening socket until standard input ends, as it does with the parent.

    The first line of standard input is the key that callers must send.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    die_first()
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as line:
        key = line.readline().decode("ascii").strip()
    if not key:
        return  # The parent has ended.
    server = EngineHttpServer(speech, key)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    threading.Thread(target=_stop_with_input, args=(server,), daemon=True).start()
    server.run([socket.socket(fileno=descriptor)])


def die_first() -> None:
    """Let Linux kill this process and its children first when memory runs out, because they are restarted."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _stop_with_input(server: EngineHttpServer) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    server.should_exit = True
    time.sleep(2 * STOP_S)
    os._exit(1)


class EngineHttpServer(uvicorn.Server):
    """The HTTP server; its shutdown does not wait for recordings in recognition."""

    def __init__(self, speech: SpeechSettings, key: str | None = None) -> None:
        self._speech = SpeechModels(speech)
        # Report unusable weights at the start.
        self._speech.fault(speech.model)
        config = uvicorn.Config(
            create_app(self._speech, key),
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_S,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; requests that wait for speech get 503."""
        await self._speech.close()
        await super().shutdown(sockets)
