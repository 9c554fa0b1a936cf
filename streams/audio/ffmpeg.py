"""Decodes one file by FFmpeg, which finds the codec; the container's times say where its audio belongs.

PyAV includes FFmpeg. Only decoders and workers import this module.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import av
import numpy as np
import numpy.typing as npt

from streams.audio import claims, parts
from streams.audio.sources import DescriptorSource, GuardedSource
from streams.models.protocol import Floats
from topics.errors import AudioError, NoAudio
from topics.media import KINDS, MAX_RATE, MIN_RATE, MOST_GAP_S, Container

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.packet import Packet

AMR: Final = frozenset({"amrnb", "amrwb", "libopencore_amrnb", "libopencore_amrwb"})
#: Codecs in common use for recording and publishing; PCM and ADPCM of any kind are allowed too.
CODECS: Final = frozenset(
    {"aac", "ac3", "alac", "eac3", "flac", "g726", "g726le", "gsm", "gsm_ms", "libopus", "libspeex", "libvorbis"}
    | {"mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float", "opus", "speex", "vorbis", "wavpack"}
    | {"wmalossless", "wmapro", "wmav1", "wmav2"}
    | AMR
)
#: Codecs with checksums, whose packets are damaged if one is wrong.
CHECKED: Final = frozenset({"flac", "wavpack"})
#: Containers without times of their own; FFmpeg counts samples or estimates.
UNTIMED: Final = frozenset[Container]({"wav", "mp3", "aiff", "au", "caf", "aac", "ac3", "wavpack"})
#: Containers that state where the audio ends within the last packet, which FFmpeg does not always heed.
PADDED: Final = frozenset[Container]({"mp4", "ogg"})
#: Containers that state how many bytes their samples have.
CHUNKED: Final = frozenset[Container]({"wav", "aiff", "au", "caf"})
#: The header of these tells all; by default FFmpeg looks at seconds of audio.
PROBED: Final = {"analyzeduration": "0", "probesize": "4096"}
OPTIONS: Final = {"wav": {**PROBED, "max_size": str(1 << 18)}}
#: Containers whose claims `claims` reads.
CLAIMING: Final = CHUNKED | {"mp3"}
#: Streams whose length FFmpeg estimates from the bit rate of the first frames.
ESTIMATED: Final = frozenset[Container]({"mp3", "aac", "ac3"})
#: In the header of an MP3, a frame without audio. Only those of further files, joined to the first, are decoded.
_XING: Final = (b"Xing", b"Info")
_FRAME_BYTES: Final = 64
#: Encoder delay and padding, by which a file may be shorter than it claims.
SLACK_S: Final = 0.25
#: FFmpeg's formats of samples; those of planes have a `p` at the end.
_KINDS: Final[dict[str, type[np.generic]]] = {
    "u8": np.uint8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "flt": np.float32,
    "dbl": np.float64,
}
SILENT: Final = "silence stands there"
#: Bytes read from a file at a time.
BUFFER_BYTES: Final = 1 << 16
#: Smaller differences between times and samples are the precision of the times.
TOLERANCE_S: Final = 0.1


class _Clock:
    """Compares the times of a container, in seconds, with the audio that it holds. One thread at a time."""

    def __init__(self, starts: bool, origin: float) -> None:
        """The first sample is late only if it `starts` the source. The file's first stream begins at `origin`."""
        #: Whether audio has come.
        self.begun = False
        #: Seconds of audio and silence so far, and the time of the container that comes next.
        self.position = self.next = 0.0
        #: The silences (start, end) between packets.
        self.gaps: list[tuple[float, float]] = []
        self._starts = starts
        self._origin = origin
        #: Added to the container's times: they may begin again.
        self._shift = 0.0
        #: Where the last lost packet ends, and how long packets without a time are that were lost.
        self._lost_until: float | None = None
        self._lost = 0.0

    def lose(self, time: float | None, length: float) -> None:
        """Note a packet without audio."""
        if time is not None:
            self._lost_until = time + self._shift + length
        else:
            self._lost += length

    def place(self, time: float | None, length: float) -> float:
        """Take the next audio, which has a time if the container states one; return the silence before it."""
        silence, self._lost = self._lost, 0.0
        self.next += silence
        if time is not None:
            if not self.begun:
                silence += self._lateness(time)
                self.next = time
            silence += self._gap(time + self._shift)
        self.begun, self._lost_until = True, None
        self.position += silence + length
        self.next += length
        return silence

    def end(self) -> float:
        """Return the silence after the last audio."""
        until = self.next + self._lost if self._lost_until is None else max(self.next, self._lost_until)
        silence, self.next = until - self.next, until
        self.position += silence
        return silence

    def _gap(self, time: float) -> float:
        missing = time - self.next
        if missing < -TOLERANCE_S:
            self._shift -= missing
        if missing <= (TOLERANCE_S if self._lost_until is None else 0.0):
            return 0.0
        self.next = time
        if self._lost_until is None:
            self.gaps.append((self.position, self.position + missing))
        return missing

    def _lateness(self, time: float) -> float:
        """Return how late the first sample is.

        An excerpt of a broadcast may keep its times; then only what comes before its other streams is silence.
        """
        late = time if time <= MOST_GAP_S else time - self._origin
        return late if self._starts and late > TOLERANCE_S else 0.0


class File:
    """One file of a source, opened. One thread at a time.

    `rate`, `channels` and `frames`, if its header states how many there are, describe its audio.
    """

    def __init__(
        self,
        source: GuardedSource | DescriptorSource,
        kind: Container,
        start: int,
        end: int,
        base: float = 0.0,
        *,
        starts: bool = False,
    ) -> None:
        """Open the file of a kind that begins at `start`, and whose audio follows `base` seconds of other audio.

        The source's last file ends at `end`. The time at which its audio begins counts only if it `starts` the source.

        Raises:
            AudioError: its header is damaged, it holds no audio, or its codec is not supported.
        """
        self.name = KINDS[kind].name
        #: What is wrong with the file, known once it was read.
        self.notes: list[str] = []
        self._claim = claims.read(source, kind, start, end)
        self.part = parts.part(source, kind, start, end, self._claim)
        self._source = source
        self._kind = kind
        self._base = base
        self._container = self._open()
        self._stream = self._audio_stream()
        #: Seconds of a unit of time.
        self._tick = float(self._stream.time_base or 0)
        origin = (self._container.start_time or 0) / av.time_base
        self._clock = _Clock(starts and kind != "flac", origin)
        self._ends = self._stated_end() if kind in PADDED and self.part.end == end else None
        self._pieces = self._decoded()
        #: Only a frame states the true rate: some headers state half of it.
        self._first = next(self._pieces, None)
        if self._first is None:
            raise AudioError("; ".join(self.notes)) if self.notes else NoAudio
        _, self.rate, samples = self._first
        self.channels = samples.shape[1]
        self.frames = self._header_frames()

    def pieces(self) -> Iterator[tuple[float, int, Floats]]:
        """Yield the seconds of silence before a piece, its rate in Hz, and its frames, float32[n, channels]."""
        assert self._first is not None
        yield self._first
        yield from self._pieces

    def _open(self) -> InputContainer:
        fault = f"the {self.name} file's header is damaged or not complete"
        names, self._parsed = parts.boxes(self._source, self.part.start, self.part.end)
        if self._kind == "mp4" and b"moov" not in names:
            fault = f"the {self.name} file has no index (moov): it was cut off, or its recording never ended"
        self._source.seek(self.part.start)
        wave64 = self._source.read(4) == b"riff"
        reader = "w64" if wave64 else KINDS[self._kind].reader
        options = OPTIONS.get(reader, PROBED if self._kind in CHUNKED else {})
        try:
            opened = av.open(
                self.part, "r", format=reader, metadata_errors="ignore", options=options, buffer_size=BUFFER_BYTES
            )
        except MemoryError:
            raise
        except Exception as error:
            self._source.check()
            raise AudioError(fault) from error
        self._source.check()
        return opened

    def _audio_stream(self) -> AudioStream:
        stream = next(iter(self._container.streams.audio), None)
        if stream is None:
            raise AudioError(f"the {self.name} file holds no audio")
        codec = stream.codec_context
        name = "unknown" if codec is None else codec.name
        if name.startswith("g726") and codec.bit_rate == 5 * codec.sample_rate:
            name = "g723_40"  # FFmpeg decodes it wrongly.
        self._codec = name.removesuffix("float").removeprefix("lib")
        if name not in CODECS and not name.startswith(("pcm_", "adpcm_")):
            raise AudioError(f"the {self.name} file has audio of the codec {name[:40]}, which is not supported")
        if codec.sample_rate > MAX_RATE:
            raise AudioError(f"the sample rate is {codec.sample_rate} Hz, allowed are {MIN_RATE} to {MAX_RATE}")
        # This process may not start processes or threads.
        codec.thread_count, codec.thread_type = 1, "NONE"
        if name in CHECKED:
            codec.options = {"err_detect": "crccheck+explode"}
        self._is_vorbis = (self._kind, name) == ("ogg", "vorbis")
        if self._is_vorbis:
            # FFmpeg counts the samples of the first packet, which are none, and may drop as many at the end.
            codec.options = {"flags2": "+skip_manual"}
        return stream

    def _header_frames(self) -> int | None:
        """Return how many frames the header states, as far as it can be trusted."""
        if self._kind in ESTIMATED or (self._kind in CHUNKED and self._claim.end is None and not self._claim.right):
            return None
        length = self._container.duration
        return None if length is None or self._claim.more else length * self.rate // av.time_base

    def _claimed(self) -> float | None:
        """Return the time in seconds at which the audio should end; None if the file does not say it."""
        if self._kind in CLAIMING:
            return None if self._claim.frames is None else self._claim.frames / self.rate
        if self._kind == "ogg" or self._kind in ESTIMATED:
            return None
        if (stated := self._stated_end()) is not None:
            return stated
        # The duration of the whole file may be that of its video.
        length = self._container.duration if len(self._container.streams) == 1 else None
        return None if length is None else length / av.time_base

    def _stated_end(self) -> float | None:
        """Return the time in seconds at which the stream ends; None if the container does not state it."""
        stream = self._stream
        start = 0 if self._kind == "flac" else stream.start_time or 0
        return None if stream.duration is None else (start + stream.duration) * self._tick

    def _decoded(self) -> Iterator[tuple[float, int, Floats]]:
        clock, codec, is_first = self._clock, self._codec, self._is_vorbis
        damaged: list[float] = []
        for packet in self._packets():
            try:
                frames = packet.decode()
            except MemoryError:
                raise
            except av.error.FFmpegError:
                self._source.check()
                frames = []
                if packet.size and not (self._kind in ESTIMATED and _is_no_audio(bytes(packet))):
                    clock.lose(self._time(packet), (packet.duration or 0) * self._tick)
                    damaged += [] if codec in AMR and _is_silence(bytes(packet)) else [self._base + clock.position]
            if is_first and packet.size:
                frames, is_first = [], False
            for frame in frames:
                samples = self._trimmed(frame)
                if not len(samples):
                    continue
                rate = frame.sample_rate
                yield clock.place(self._time(frame), len(samples) / rate), rate, samples
        self._source.check()
        if not clock.begun:
            if damaged:
                raise AudioError(f"no packet of the {codec} audio in the {self.name} file can be decoded")
            return
        cut_off = len(damaged) == 1 and damaged[0] == self._base + clock.position
        if not cut_off and (silence := clock.end()) > TOLERANCE_S:
            yield silence, self.rate, np.empty((0, self.channels), np.float32)
        if damaged and not cut_off:
            number = "1 packet is" if len(damaged) == 1 else f"{len(damaged)} packets are"
            self.notes.append(f"{number} damaged in the {codec} audio, from {damaged[0]:.1f} s on: {SILENT}")
        if clock.gaps:
            start, end = (self._base + time for time in clock.gaps[0])
            more = f" and in {len(clock.gaps) - 1} later gaps" * (len(clock.gaps) > 1)
            self.notes.append(f"the {self.name} file has no audio from {start:.1f} to {end:.1f} s{more}: {SILENT}")
        self._check_end(clock.next, self._base + clock.position, cut_off)

    def _time(self, of: Packet[AudioStream] | AudioFrame) -> float | None:
        """Return the container's time in seconds, if it has times and states this one."""
        return None if of.pts is None or self._kind in UNTIMED else of.pts * self._tick

    def _trimmed(self, frame: AudioFrame) -> Floats:
        """Return float32[n, channels] in -1..1, without the padding after the end that the container states."""
        samples = _samples(frame)
        if self._ends is None:
            return samples
        start = self._time(frame)
        if start is not None and not self._clock.begun and self._is_vorbis:
            self._ends += start - (self._stream.start_time or 0) * self._tick
        if start is not None and start < self._ends + SLACK_S:
            samples = samples[: max(0, round((self._ends - start) * frame.sample_rate))]
        return samples

    def _check_end(self, ended: float, position: float, cut_off: bool) -> None:
        """Note if the audio ended, at a time of the container and at a position, before it should."""
        claimed, ends = self._claimed(), f"the audio ends at {position:.1f} s"
        slack = 0.5 / self.rate if self._kind == "flac" else SLACK_S
        if claimed is not None and claimed - ended > slack:
            self.notes.append(f"{ends}, and its header says {position + claimed - ended:.1f} s: it was cut off")
        elif self._kind == "ogg" and claims.ogg_is_unfinished(self._source, self.part.end):
            self.notes.append(f"{ends}, without the mark of its end: it was cut off")
        elif cut_off:
            self.notes.append(f"{ends}, amid a packet: it was cut off")
        elif self._kind == "mp4" and self._parsed < self.part.end and not self._is_tag(self._parsed):
            self.notes.append(f"{ends}: {self._damaged(self._parsed)}")
        if self._claim.more:
            more = f"its header leaves out the last {self._claim.more} bytes of the audio"
            self.notes.append(f"{more}, which were read too")

    def _packets(self) -> Iterator[Packet[AudioStream]]:
        """Yield the packets of the audio; a damaged container ends them, with a note."""
        end = self.part.start
        try:
            for packet in self._container.demux(self._stream):
                if packet.pos is not None:
                    end = self.part.start + packet.pos + packet.size
                yield packet
        except MemoryError:
            raise
        except av.error.FFmpegError:
            # Some readers take the end of the data, or a tag, for damage.
            if self.part.at < self.part.end and not self._is_tag(end):
                self.notes.append(self._damaged(end))
        self._source.check()

    def _damaged(self, at: int) -> str:
        return f"the {self.name} file is damaged at byte {at - self.part.start} of {self.part.end - self.part.start}"

    def _is_tag(self, at: int) -> bool:
        self._source.seek(at)
        return self._source.read(_FRAME_BYTES).startswith(claims.TAGS)


def warm_up() -> None:
    """Import what PyAV would import with the first file."""
    for module in pkgutil.walk_packages(av.__path__, "av."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _is_no_audio(packet: bytes) -> bool:
    """Return whether a packet of a stream of frames has a tag, or the header of an MP3 that was joined to another."""
    return any(tag in packet for tag in claims.TAGS) or any(name in packet[:_FRAME_BYTES] for name in _XING)


def _is_silence(packet: bytes) -> bool:
    """Return whether a packet of AMR is one of its modes for silence, which FFmpeg refuses."""
    return packet[0] >> 3 & 15 >= 8


def _samples(frame: AudioFrame) -> Floats:
    """Return float32[n, channels] in -1..1."""
    channels, form = frame.layout.nb_channels, frame.format.name
    buffers: list[Any] = list(frame.planes)
    data: npt.NDArray[Any]
    # PyAV's own conversion takes as long as decoding.
    if form.endswith("p"):
        planes = [np.frombuffer(plane, _KINDS[form[:-1]], frame.samples) for plane in buffers[:channels]]
        data = planes[0][:, None] if channels == 1 else np.stack(planes, axis=1)
    else:
        data = np.frombuffer(buffers[0], _KINDS[form], frame.samples * channels).reshape(-1, channels)
    if data.dtype == np.uint8:
        data = (data.astype(np.float32) - np.float32(128)) / np.float32(128)
    elif data.dtype.kind == "i":
        data = np.multiply(data, np.float32(0.5 ** (8 * data.itemsize - 1)), dtype=np.float32)
    floats: Floats = data.astype(np.float32, copy=False)
    return floats
