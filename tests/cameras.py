"""RTSP cameras for tests: a server of RTSP 1.0 whose streams can be killed, stalled, silenced and changed."""

from __future__ import annotations

import asyncio
import hashlib
import re
import struct
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import av
import numpy as np

from tests.ports import free_port

Samples = Callable[[int, int, int], "np.ndarray[tuple[int], np.dtype[np.int16]]"]

REALM: Final = "camera"
#: Samples of each packet.
PACKET: Final = {"pcma": 160, "pcmu": 160, "l16": 320, "aac": 1024, "opus": 960, "odd": 160}


def noise(first: int, count: int, rate: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Return samples that depend on their position alone, so that each can be recognized."""
    place = (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (place ^ (place >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(50)).astype(np.int32) - (1 << 13)).astype(np.int16)


def silence(first: int, count: int, rate: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.zeros(count, np.int16)


@dataclass
class Sent:
    """Audio that was sent without a gap: the Unix time of its first sample, its position, and how many there are."""

    rate: int
    began: float
    first: int
    count: int = 0

    @property
    def pcm(self) -> bytes:
        """The samples of `noise` at 16 bits."""
        return noise(self.first, self.count, self.rate).tobytes()


@dataclass
class Camera:
    """A camera. Its attributes may be changed while it streams; connections see `codec` and `rate` from the next on.

    `speed` is that of its clock, and `burst` seconds of audio are sent at once when a connection begins.
    """

    codec: str = "l16"
    rate: int = 16000
    samples: Samples = noise
    speed: float = 1.0
    burst: float = 0.0
    stalled: bool = False
    dead: bool = False
    audio: bool = True
    password: str = ""
    digest: bool = True
    #: At least one for each connection.
    sent: list[Sent] = field(default_factory=list)
    #: Media that clients have asked for.
    tracks: list[str] = field(default_factory=list)
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def resumed(self) -> None:
        """Wait until it is not stalled."""
        while self.stalled:  # noqa: ASYNC110 (another thread changes it)
            await asyncio.sleep(0.02)


class Cameras:
    """Serves cameras by name, `rtsp://127.0.0.1:PORT/NAME`, in a thread."""

    def __init__(self) -> None:
        self.cameras: dict[str, Camera] = {}
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def add(self, name: str, camera: Camera) -> str:
        """Return the URL of a new camera."""
        self.cameras[name] = camera
        user = f"admin:{camera.password}@" if camera.password else ""
        return f"rtsp://{user}127.0.0.1:{self.port}/{name}"

    def kill(self, camera: Camera) -> None:
        """End all connections of a camera; it is `dead` until that is set to False."""
        camera.dead = True
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in camera.connections])

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", self.port))
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await _Connection(self.cameras, reader, writer).run()
        finally:
            writer.close()  # After what was sent, as when a process ends.


class _Connection:
    def __init__(self, cameras: dict[str, Camera], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._cameras, self._reader, self._writer = cameras, reader, writer
        self._playing: asyncio.Task[None] | None = None
        #: Of the audio.
        self._channel = 0

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        camera: Camera | None = None
        try:
            while True:
                first = await self._reader.readexactly(1)
                if first == b"$":  # RTCP of the client
                    _, size = struct.unpack(">BH", await self._reader.readexactly(3))
                    await self._reader.readexactly(size)
                    continue
                head = (first + await self._reader.readuntil(b"\r\n\r\n")).decode()
                method, url, _ = head.split(" ", 2)
                name = url.partition("://")[2].partition("/")[2].partition("/")[0]
                if camera is None:
                    camera = self._cameras.get(name)
                    if camera is not None:
                        camera.connections.add(task)
                if camera is not None and camera.dead:
                    return
                self._answer(method, url, head, camera)
        finally:
            if self._playing is not None:
                self._playing.cancel()
            if camera is not None:
                camera.connections.discard(task)

    def _answer(self, method: str, url: str, head: str, camera: Camera | None) -> None:
        sequence = re.search(r"(?i)cseq: *(\d+)", head)
        headers, body, status = "", "", "200 OK"
        if camera is None:
            status = "404 Not Found"
        elif method != "OPTIONS" and camera.password and not _allowed(camera, head, method):
            status = "401 Unauthorized"
            headers = f'WWW-Authenticate: {"Digest" if camera.digest else "Basic"} realm="{REALM}", nonce="abc"\r\n'
        elif method == "OPTIONS":
            headers = "Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER\r\n"
        elif method == "DESCRIBE":
            body = _description(camera)
            headers = f"Content-Base: {url}/\r\nContent-Type: application/sdp\r\nContent-Length: {len(body)}\r\n"
        elif method == "SETUP":
            camera.tracks.append(url.rpartition("/")[2])
            channels = re.search(r"interleaved=((\d+)-\d+)", head)
            if channels is None:
                status = "461 Unsupported Transport"
            else:
                headers = f"Transport: RTP/AVP/TCP;unicast;interleaved={channels[1]}\r\nSession: 1;timeout=60\r\n"
                if camera.tracks[-1] == "audio":
                    self._channel = int(channels[2])
        elif method == "PLAY":
            headers = "Session: 1\r\n"
            self._playing = asyncio.create_task(self._play(camera))
        answer = f"RTSP/1.0 {status}\r\nCSeq: {sequence[1] if sequence else 0}\r\n{headers}\r\n{body}"
        self._writer.write(answer.encode())

    async def _play(self, camera: Camera) -> None:
        codec, rate = camera.codec, camera.rate
        size, encode = PACKET[codec], _encoder(codec, rate)
        # The audio is that of the present, minus the burst.
        began = time.time() - camera.burst
        start = int(began * rate) if codec != "l16" else int(began * 1000) * (rate // 1000)
        began, clock = start / rate, time.monotonic() - camera.burst
        record = Sent(rate, began, start)
        camera.sent.append(record)
        number, at, waiting = 0, 0, b""
        with suppress(ConnectionError):
            while True:
                due = clock + (at + size) / rate / camera.speed
                if camera.stalled:
                    await camera.resumed()
                    # What it did not send in time is lost.
                    at += max(0, int((time.monotonic() - due) * rate * camera.speed) // size) * size
                    record = Sent(rate, began + at / rate, start + at)
                    camera.sent.append(record)
                    continue
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                samples = camera.samples(start + at, size, rate)
                for payload, marker in encode(samples):
                    packet = (
                        struct.pack(">BBHII", 0x80, marker << 7 | 96, number & 0xFFFF, at & 0xFFFFFFFF, 1) + payload
                    )
                    waiting += struct.pack(">cBH", b"$", self._channel, len(packet)) + packet
                    number += 1
                at += size
                record.count += size
                if at >= camera.burst * rate:  # However long it took to encode the burst, it is sent at once.
                    self._writer.write(waiting)
                    waiting = b""
                    await self._writer.drain()


def _allowed(camera: Camera, head: str, method: str) -> bool:
    found = re.search(r"(?i)authorization: *(basic|digest) (.*)", head)
    if found is None:
        return False
    if found[1].lower() == "basic":
        return b64decode(found[2].strip()).decode() == f"admin:{camera.password}"
    values = dict(re.findall(r'(\w+)="([^"]*)"', found[2]))
    secret = hashlib.md5(f"admin:{REALM}:{camera.password}".encode()).hexdigest()
    what = hashlib.md5(f"{method}:{values.get('uri')}".encode()).hexdigest()
    return values.get("response") == hashlib.md5(f"{secret}:abc:{what}".encode()).hexdigest()


def _description(camera: Camera) -> str:
    rate = camera.rate
    known = {
        "pcma": "PCMA/8000",
        "pcmu": "PCMU/8000",
        "l16": f"L16/{rate}/1",
        "opus": "opus/48000/2",
        "odd": "VENDOR/8000",
    }
    lines = ["v=0", "o=- 0 0 IN IP4 127.0.0.1", "s=camera", "c=IN IP4 0.0.0.0", "t=0 0"]
    lines += ["m=video 0 RTP/AVP 97", "a=rtpmap:97 H264/90000", "a=fmtp:97 packetization-mode=1", "a=control:video"]
    if camera.audio:
        lines += ["m=audio 0 RTP/AVP 96", f"a=rtpmap:96 {known.get(camera.codec, f'mpeg4-generic/{rate}/1')}"]
        if camera.codec == "aac":
            config = _aac(rate)[1].hex()
            lines.append(
                "a=fmtp:96 streamtype=5; profile-level-id=1; mode=AAC-hbr; sizelength=13; indexlength=3; "
                f"indexdeltalength=3; config={config}"
            )
        lines.append("a=control:audio")
    return "\r\n".join([*lines, ""])


def _aac(rate: int) -> tuple[av.AudioCodecContext, bytes]:
    encoder = av.CodecContext.create("aac", "w")
    assert isinstance(encoder, av.AudioCodecContext)
    encoder.sample_rate, encoder.layout, encoder.format, encoder.bit_rate = rate, "mono", "fltp", 64000
    encoder.open()
    return encoder, bytes(encoder.extradata or b"")


Encode = Callable[["np.ndarray[tuple[int], np.dtype[np.int16]]"], Iterator[tuple[bytes, int]]]


def _encoder(codec: str, rate: int) -> Encode:
    """Return a function from samples to payloads and their marker bits."""
    if codec in ("l16", "odd"):
        return lambda samples: iter([(samples.astype(">i2").tobytes(), 0)])
    context = {"pcma": "pcm_alaw", "pcmu": "pcm_mulaw", "opus": "libopus"}.get(codec)
    if context is None:
        encoder, _ = _aac(rate)
    else:
        made = av.CodecContext.create(context, "w")
        assert isinstance(made, av.AudioCodecContext)
        made.sample_rate, made.layout, made.format = rate, "mono", "s16"
        made.open()
        encoder = made

    def encode(samples: np.ndarray[tuple[int], np.dtype[np.int16]]) -> Iterator[tuple[bytes, int]]:
        planar = encoder.format.name == "fltp"
        data = samples[None, :].astype(np.float32) / 32768 if planar else samples[None, :]
        frame = av.AudioFrame.from_ndarray(data, format=encoder.format.name, layout="mono")
        frame.sample_rate = rate
        for packet in encoder.encode(frame):
            header = struct.pack(">HH", 16, packet.size << 3) if codec == "aac" else b""
            yield header + bytes(packet), 1

    return encode


@contextmanager
def cameras() -> Iterator[Cameras]:
    """Run a server of cameras."""
    served = Cameras()
    served.start()
    try:
        yield served
    finally:
        served.stop()
