"""mediamtx, an RTSP server in Go that passes cameras on, and a relay that keeps what it sends."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Final
from urllib.parse import quote

import numpy as np
import pytest

from tests.cameras import PACKET
from tests.interop.environments import kept, program, run
from tests.ports import free_port, listens
from tests.waiting import wait_for

PROGRAM: Final = "github.com/bluenviron/mediamtx@v1.14.0"


def _install(folder: Path) -> None:
    # Go installs no program from a module that lacks files which it embeds: they are written here.
    go, source = program("go"), folder / "source"
    module = json.loads(run(go, "mod", "download", "-json", PROGRAM, skip=True))["Dir"]
    # Without the modes: a module's files are read-only.
    shutil.copytree(module, source, copy_function=shutil.copyfile)
    for path in (source, *source.rglob("*/")):
        path.chmod(0o755)
    (source / "internal/core/VERSION").write_text(PROGRAM.partition("@")[2])
    (source / "internal/servers/hls/hls.min.js").touch()
    run(go, "build", "-o", folder / "mediamtx", ".", folder=source, skip=True)
    shutil.rmtree(source)


def _refuse(folder: Path) -> None:
    pytest.skip("mediamtx is not built: make soak NAMES=agent builds it once, with Go")


class Mediamtx:
    """Pulls cameras, and passes them on by their names, below `url`, to a user with a password."""

    def __init__(self, directory: Path, cameras: dict[str, str], password: str, build: bool = True) -> None:
        """Take the URLs of cameras by name. Skip if it is not built yet, and cannot be or may not be."""
        self._program = kept("mediamtx", PROGRAM, _install if build else _refuse) / "mediamtx"
        self.port = free_port()
        self.url = f"rtsp://admin:{quote(password)}@127.0.0.1:{self.port}/"
        self._log, self._configuration = directory / "mediamtx.log", directory / "mediamtx.yml"
        settings = {
            **dict.fromkeys(("rtmp", "hls", "webrtc", "srt"), False),
            "rtspAddress": f"127.0.0.1:{self.port}",
            "rtspTransports": ["tcp"],
            "authInternalUsers": [{"user": "admin", "pass": password, "permissions": [{"action": "read"}]}],
            "paths": {name: {"source": url, "rtspTransport": "tcp"} for name, url in cameras.items()},
        }
        self._configuration.write_text(json.dumps(settings))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([self._program, self._configuration], stdout=log, stderr=log)
        wait_for(self._listens)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stall(self, stalled: bool) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if stalled else signal.SIGCONT)

    def _listens(self) -> bool:
        assert self._process is not None
        return listens(self._process, self.port, self._log)

    def __enter__(self) -> Mediamtx:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class Passed:
    """What a server of RTSP sent over one connection."""

    def __init__(self) -> None:
        self.data = bytearray()

    def found(self, pattern: bytes) -> str:
        """Return the group of a pattern in the answers, "" without it."""
        found = re.search(pattern, self.data)
        return found[1].decode() if found else ""

    @property
    def name(self) -> str:
        return self.found(rb"Content-Base: rtsp://[^/]*/(\w+)/")

    @property
    def payloads(self) -> Iterator[bytes]:
        """The payloads of RTP that came whole. One track is played."""
        at = 0
        while len(self.data) >= at + 4:
            if self.data[at] != ord("$"):
                end = self.data.index(b"\r\n\r\n", at) + 4
                length = re.search(rb"Content-Length: (\d+)", self.data[at:end])
                at = end + (int(length[1]) if length else 0)
                continue
            channel, size = struct.unpack_from(">BH", self.data, at + 1)
            at += 4 + size
            if channel == 0 and at <= len(self.data):
                yield bytes(self.data[at - size + 12 : at])

    @property
    def pcm(self) -> bytes:
        """Of L16, in the order of this machine."""
        return np.frombuffer(b"".join(self.payloads), ">i2").astype(np.int16).tobytes()

    @property
    def seconds(self) -> float:
        codec = self.found(rb"(?s)m=audio.*?rtpmap:\d+ ([^/]+)/").lower()
        rate = self.found(rb"(?s)m=audio.*?rtpmap:[^/]+/(\d+)")
        size = {
            "l16": lambda payload: len(payload) // 2,
            "pcma": len,
            "pcmu": len,
            "opus": lambda payload: PACKET["opus"],
            # Before the units are their number of bits of headers, and the headers, of 16 bits.
            "mpeg4-generic": lambda payload: int.from_bytes(payload[:2]) // 16 * PACKET["aac"],
        }[codec]
        return sum(map(size, self.payloads)) / int(rate)


class Relay(ThreadingTCPServer):
    """Passes connections on to a port of this machine, and keeps what came from there and went on."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.connections: list[Passed] = []
        relay, self.port = self, free_port()

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as upstream:
                    passed = Passed()
                    relay.connections.append(passed)
                    Thread(target=self.ask, args=[upstream], daemon=True).start()
                    while data := upstream.recv(65536):
                        self.request.sendall(data)
                        passed.data += data

            def ask(self, upstream: socket.socket) -> None:
                with suppress(OSError):
                    while data := self.request.recv(65536):
                        upstream.sendall(data)
                    upstream.shutdown(socket.SHUT_RDWR)

        super().__init__(("127.0.0.1", self.port), Handler)

    def of(self, name: str) -> list[Passed]:
        """Return the connections that asked for a camera."""
        return [one for one in self.connections if one.name == name]

    def size(self, name: str) -> int:
        """Return the bytes that came of a camera."""
        return sum(len(one.data) for one in self.of(name))
