"""Streams by HTTP, as web radios and cheap cameras send them."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import av
import numpy as np
import pytest

from infra.agent import capture as capturing
from infra.agent.capture import RECORDING, Fault, Format, Heard, capture
from infra.agent.clock import Clock
from infra.agent.sources import Source
from tests.cameras import noise

RATE = 22050
#: Seconds that a radio sends at once.
BURST = 3.0


def recording(seconds: int) -> bytes:
    """Return noise as MP3."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp3") as out:
        stream = out.add_stream("libmp3lame", rate=RATE, layout="mono")
        samples = noise(0, seconds * RATE, RATE)
        frame = av.AudioFrame.from_ndarray(samples[None, :], format="s16p", layout="mono")
        frame.sample_rate = RATE
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return file.getvalue()


class Radio(BaseHTTPRequestHandler):
    #: Set by whoever starts it: encoding takes seconds.
    data = b""
    #: Unix time at which the last listener got its burst.
    began = 0.0

    def do_GET(self) -> None:
        if self.path == "/locked":
            self.send_error(401)
            return
        if self.path == "/page":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>a camera</html>")
            return
        self.send_response(200)
        self.send_header("Content-Type", "audio/mpeg")
        self.end_headers()
        a_second = len(self.data) // 120
        try:
            if self.path == "/recording":
                self.wfile.write(self.data)
                return
            sent, began, Radio.began = int(BURST * a_second), time.monotonic(), time.time()
            self.wfile.write(self.data[:sent])
            while sent < len(self.data):
                time.sleep(0.05)
                due = int((time.monotonic() - began + BURST) * a_second)
                self.wfile.write(self.data[sent:due])
                sent = due
        except OSError:
            return

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    Radio.data = recording(120)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Radio)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_radio_sends_a_burst_of_the_past(url: str) -> None:
    def off() -> float:
        """Return by how many seconds capture times are off, at most."""
        stopped, blocks, forms = Event(), list[Heard](), list[Format]()

        def take(heard: Heard) -> None:
            blocks.append(heard)
            if len(blocks) == 8:
                stopped.set()

        capture(Source("radio", url=f"{url}/radio"), Clock(), stopped, take, forms.append)
        assert forms[0].rate == RATE
        assert np.frombuffer(blocks[4].data, "<i2").std() > 1000
        return max(abs(block.at_ms / 1000 - Radio.began + BURST - number / 2) for number, block in enumerate(blocks))

    # A busy machine may read late, and tries again.
    assert any(off() < 0.3 for _ in range(6))


def why(url: str) -> str:
    with pytest.raises(Fault) as fault:
        capture(Source("radio", url=url), Clock(), Event(), lambda heard: None, lambda form: None)
    return str(fault.value)


def test_what_is_no_stream(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why(f"{url}/recording") == RECORDING
    monkeypatch.setattr(capturing, "MOST_AHEAD", 2.0)
    assert why(f"{url}/radio") == RECORDING
    assert why(f"{url}/locked") == "wrong user name or password"
    assert why(f"{url}/page") == "it cut the connection, or sends no audio that can be read"
