"""Captures one source: opens it, decodes its audio, and hands over blocks of 16 kHz mono PCM with their capture times.

FFmpeg does it in this process, so no list of processes shows the URL. Its messages hold the URL and are not logged.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from threading import Event
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from infra.agent.clock import DRIFT, GAP, Clock, Timeline
from infra.agent.sources import Source

if TYPE_CHECKING:
    import av

RATE: Final = 16000
BLOCK_SECONDS: Final = 0.5
BLOCK_BYTES: Final = int(RATE * BLOCK_SECONDS) * 2
#: Seconds without an answer, and without a packet.
OPEN_SECONDS: Final = 10.0
READ_SECONDS: Final = 10.0
#: Seconds of audio ahead of the clock after which a URL is a recording. Servers of radio send a minute at once.
MOST_AHEAD: Final = 120.0
#: Packets in a row that may be damaged.
MOST_DAMAGED: Final = 50
#: The largest difference between the samples of digital silence: an encoder may turn zeros into ones.
SILENT: Final = 2

NO_SOUND_CARD: Final = (
    "no such microphone: `arecord -L` lists them; systemd needs SupplementaryGroups=audio, and ALSA its configuration, "
    "which Debian has in libasound2-data"
)
RECORDING: Final = "it is a recording, not a live stream: put the file into a folder, and name that as a source"


class Fault(Exception):
    """Why a source cannot be heard, in one sentence without secrets."""


class Heard(msgspec.Struct, frozen=True):
    """A block of PCM: the Unix time (ms) of its first sample, and whether it is digital silence."""

    at_ms: int
    data: bytes
    silent: bool = False


class Format(msgspec.Struct, frozen=True):
    """What a source sends."""

    codec: str
    rate: int
    channels: int

    def __str__(self) -> str:
        number = {1: "mono", 2: "stereo"}.get(self.channels, f"{self.channels} channels")
        return f"{self.codec}, {self.rate} Hz, {number}"


def capture(
    source: Source,
    clock: Clock,
    stopped: Event,
    deliver: Callable[[Heard], object],
    changed: Callable[[Format], object],
) -> None:
    """Capture until `stopped`, and call `changed` with the format when it is known and when it changes.

    Raises:
        Fault: the source cannot be opened, ended, or does not work.
    """
    import av

    began, connection = time.monotonic(), None
    try:
        if source.url is not None:
            _resolve(source.url)
        with _open(source) as container:
            connection = _Capture(container, clock, deliver, changed)
            connection.run(stopped)
    except av.error.FFmpegError as error:
        if stopped.is_set():
            return
        waited = time.monotonic() - ((connection and connection.heard_at) or began)
        # FFmpeg has many errors for the end of its patience.
        if source.url is not None and waited >= min(OPEN_SECONDS, READ_SECONDS):
            raise Fault(f"no answer or no audio from {source.place} for {READ_SECONDS:g} s") from None
        raise Fault(_sentence(error, source)) from None
    if not stopped.is_set():
        raise Fault("the stream ended")


def _resolve(url: str) -> None:
    host = urlsplit(url).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):  # The latter of labels that are empty or too long.
        raise Fault(f"unknown host {host}") from None


def _open(source: Source) -> av.container.InputContainer:
    import av

    timeout = (OPEN_SECONDS, READ_SECONDS)
    if source.url is None:
        options = {"sample_rate": "48000", "channels": "1"}
        return av.open(source.microphone or "", format="alsa", options=options, timeout=timeout)
    options = {"protocol_whitelist": "rtsp,rtsps,rtp,tcp,tls,http,https,httpproxy,crypto", "analyzeduration": "1000000"}
    if urlsplit(source.url).scheme in ("rtsp", "rtsps"):
        options |= {"rtsp_transport": "tcp", "allowed_media_types": "audio"}
    return av.open(source.url, options=options, timeout=timeout, metadata_errors="replace")


class _Capture:
    """One connection."""

    def __init__(
        self,
        container: av.container.InputContainer,
        clock: Clock,
        deliver: Callable[[Heard], object],
        changed: Callable[[Format], object],
    ) -> None:
        self._container, self._clock, self._deliver, self._changed = container, clock, deliver, changed
        self._line = Timeline()
        self._graph: av.filter.Graph | None = None
        self._format: tuple[object, ...] = ()
        self._rest = bytearray()
        #: Bytes handed over.
        self._handed = 0
        #: When the last packet came, by the monotonic clock.
        self.heard_at: float | None = None

    def run(self, stopped: Event) -> None:

        if not self._container.streams.audio:
            raise Fault("it has no audio track: switch the audio on in the camera")
        stream = self._container.streams.audio[0]
        # PyAV has no codec context for a codec without a decoder.
        if stream.codec_context is None:
            raise Fault("its codec has no decoder here: choose AAC, G.711 or Opus in the camera")
        stream.codec_context.thread_count = 1
        try:
            self._read(stream, stopped)
        finally:  # What came before the end counts, however it ends.
            # A live stream that is cut at once came early too. RTSP tells the length of a recording.
            live = self._container.format.name == "rtsp" and self._container.duration is None
            if self._line.early and not live and not stopped.is_set():
                raise Fault(RECORDING) from None
            self._flush()
            self._hand_over(None)

    def _read(self, stream: av.AudioStream, stopped: Event) -> None:
        import av

        damaged, due = 0, None
        for packet in self._container.demux(stream):
            at = self.heard_at = time.monotonic()
            if packet.pts is not None and packet.duration and packet.time_base is not None:
                if due is not None:
                    self._skip(at, float((packet.pts - due) * packet.time_base))
                due = packet.pts + packet.duration
            try:
                frames = packet.decode()
            except av.error.InvalidDataError:
                damaged += 1
                if damaged > MOST_DAMAGED:
                    raise Fault("its audio cannot be decoded") from None
                continue
            damaged = 0
            self._line.arrived(at, sum(frame.samples / frame.sample_rate for frame in frames))
            for frame in frames:
                self._resample(frame)
            self._hand_over(at)
            if stopped.is_set():
                return

    def _skip(self, at: float, gap: float) -> None:
        # What is in the resampler and in the last block was captured before the gap.
        if gap > GAP:
            self._flush()
            self._hand_over(None)
            self._line.skipped(at, gap)

    def _resample(self, frame: av.AudioFrame) -> None:
        form = (frame.sample_rate, frame.layout.name, frame.format.name)
        if form != self._format:
            self._flush()
            self._format, self._graph = form, _graph(*form)
            stream = self._container.streams.audio[0]
            self._changed(Format(stream.codec_context.name, frame.sample_rate, frame.layout.nb_channels))
        # Its time stamps may jump; what counts is when it came.
        frame.pts = None
        self._push(frame)

    def _flush(self) -> None:
        """Take the rest out of the resampler, which ends it."""
        if self._graph is not None:
            self._push(None)
        self._graph, self._format = None, ()

    def _push(self, frame: av.AudioFrame | None) -> None:
        import av

        assert self._graph is not None
        self._graph.push(frame)
        while True:
            try:
                done = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            self._rest += memoryview(done.planes[0])[: done.samples * 2]  # type: ignore[union-attr]

    def _hand_over(self, at: float | None) -> None:
        """Hand over whole blocks; at the end, where `at` is None, also the rest."""
        import numpy as np

        if at is not None:
            if not self._line.settled(at):
                return
            if self._line.ahead > MOST_AHEAD:
                raise Fault(RECORDING)
            if abs(drift := self._line.drift(at)) > DRIFT:
                raise Fault(f"its clock drifts: {drift:+.1f} s in a minute")
        while len(self._rest) >= (BLOCK_BYTES if at is not None else 2):
            data = bytes(self._rest[:BLOCK_BYTES])
            del self._rest[:BLOCK_BYTES]
            captured = self._clock.offset() + self._line.time_of(self._handed / 2 / RATE)
            self._handed += len(data)
            samples = np.frombuffer(data, "<i2")
            silent = int(samples.max()) - int(samples.min()) <= SILENT
            self._deliver(Heard(round(captured * 1000), data, silent))


def _graph(rate: int, layout: str, sample_format: str) -> av.filter.Graph:
    """Return a graph that resamples. PyAV's own resampler starts a thread on each core for each source."""
    import av.filter

    graph = av.filter.Graph()
    graph.threads = 1
    source = graph.add_abuffer(sample_rate=rate, format=sample_format, layout=layout, time_base=Fraction(1, rate))
    resampled = graph.add("aformat", sample_rates=str(RATE), sample_fmts="s16", channel_layouts="mono")
    graph.link_nodes(source, resampled, graph.add("abuffersink")).configure()
    return graph


def _sentence(error: av.error.FFmpegError, source: Source) -> str:
    """Return what FFmpeg's error means; its own text holds the URL."""
    from av import error as errors

    place = source.place
    known: tuple[tuple[type[Exception], str], ...] = (
        (errors.HTTPBadRequestError, "it refuses the request: check the path in the URL"),
        (errors.HTTPUnauthorizedError, "wrong user name or password"),
        (errors.HTTPForbiddenError, "the user may not read this stream"),
        (errors.HTTPNotFoundError, "there is no such stream: check the path in the URL"),
        (errors.HTTPTooManyRequestsError, "it has too many clients"),
        (errors.HTTPServerError, "it answered with an error of its own: it may have too many clients"),
        (errors.ConnectionRefusedError, f"nothing listens at {place}"),
        (errors.TimeoutError, f"no answer from {place}"),
        (errors.ConnectionResetError, "it cut the connection"),
        (errors.BrokenPipeError, "it cut the connection"),
        (errors.EOFError, "the stream ended"),
        (errors.DecoderNotFoundError, "its codec has no decoder here: choose AAC, G.711 or Opus in the camera"),
        (errors.InvalidDataError, "it sends no audio that can be read"),
    )
    if source.microphone is not None:
        return NO_SOUND_CARD if isinstance(error, (OSError, errors.FFmpegError)) else str(error.strerror)
    with suppress(StopIteration):
        return next(sentence for kind, sentence in known if isinstance(error, kind))
    if error.errno == errno.EIO:
        return "it cut the connection, or sends no audio that can be read"
    return f"it failed: {error.strerror}"
