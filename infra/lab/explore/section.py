"""A section of a recording: its scores by the service's own analysis, and the spectrogram of the model's input."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from infra.lab.explore.columns import Columns
from streams.audio import logmel
from streams.audio.analysis import Analysis
from streams.audio.decode import AudioFile, open_file
from streams.models.manifest import LogMel, Manifest
from streams.models.protocol import ContextEngine, Floats, SoundEngine
from topics.errors import AudioError
from topics.geometry import SESSIONS
from topics.media import parse

ANY: Final = parse("application/octet-stream")

Bytes = npt.NDArray[np.uint8]


class AnalysedSection(msgspec.Struct, frozen=True):
    manifest: Manifest
    #: Start in the recording, and length, in seconds.
    start: float
    seconds: float
    #: Packed scores as stored, uint8[windows, tags]; windows are those of `topics.geometry.SESSIONS`.
    stored: Bytes
    #: Log-mel spectrogram, float32[columns, bands], and seconds per column.
    spectrogram: Floats
    column_seconds: float
    #: Edges of the lowest and highest band.
    low_hz: float
    high_hz: float


class SpectrogramRecorder(SoundEngine):
    """Wraps a model and records the spectrogram of its input; the `Analysis` must score each patch once, in order."""

    def __init__(self, engine: SoundEngine) -> None:
        self.manifest = engine.manifest
        self._engine = engine
        front_end = engine.manifest.input
        self.front = front_end if isinstance(front_end, LogMel) else _spectrogram_of(front_end.sample_rate)
        self._per_hop = self.front.sample_rate * SESSIONS.hop_ms // 1000 // self.front.hop
        self._columns = Columns(self.front.bands)
        self._after = np.empty((0, self.front.bands), np.float32)

    @property
    def second(self) -> ContextEngine | None:
        return self._engine.second

    def scores(self, patch: Floats) -> Floats:
        frames = patch if isinstance(self.manifest.input, LogMel) else logmel.log_mel_frames(self.front, patch)
        # The next patch begins a hop later and contains the other frames.
        self._columns.add(frames[: self._per_hop])
        self._after = frames[self._per_hop :]
        return self._engine.scores(patch)

    def finish(self) -> tuple[Floats, float]:
        """Return (the spectrogram, float32[columns, bands], and the seconds of a column)."""
        self._columns.add(self._after)
        return self._columns.finish(), self._columns.span * self.front.hop / self.front.sample_rate


def analyse_section(path: Path, engine: SoundEngine, start: float = 0.0, end: float | None = None) -> AnalysedSection:
    """Analyse a file, or the part from `start` to `end` (seconds).

    Memory is bounded except for one byte per window and tag: 20 MB for a day and a hundred tags.

    Raises:
        AudioError: It cannot be read, does not decode, or ends before `start`; the message names the file.
        EngineError: The model failed.
    """
    recorder = SpectrogramRecorder(engine)
    try:
        with path.open("rb") as source:
            audio = open_file(source, ANY)
            analysis = Analysis(recorder, SESSIONS, audio.rate, recording=True)
            packed = [analysis.feed(block) for block in _section(audio, start, end)]
    except OSError as error:
        raise AudioError(f"{path}: {error.strerror}") from error
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from error
    if not analysis.position:
        raise AudioError(f"{path}: there is no audio at {start:g} s")
    packed.append(analysis.finish())
    spectrogram, column_seconds = recorder.finish()
    return AnalysedSection(
        manifest=engine.manifest,
        start=start,
        seconds=analysis.position / audio.rate,
        stored=np.frombuffer(b"".join(packed), np.uint8).reshape(-1, len(engine.manifest.tags)),
        spectrogram=spectrogram,
        column_seconds=column_seconds,
        low_hz=recorder.front.low_hz,
        high_hz=recorder.front.high_hz,
    )


def _section(audio: AudioFile, start: float, end: float | None) -> Iterator[Floats]:
    first = round(start * audio.rate)
    last = None if end is None else round(end * audio.rate)
    at = 0
    for block in audio.blocks():
        yield block[max(0, first - at) : None if last is None else max(0, last - at)]
        at += len(block)
        if last is not None and at >= last:
            return


def _spectrogram_of(rate: int) -> LogMel:
    """Return a front end for the spectrogram of a waveform model: 64 bands, frames of 25 ms every 10 ms."""
    window = rate // 40
    return LogMel(
        sample_rate=rate,
        frames=1,
        bands=64,
        window=window,
        hop=rate // 100,
        fft=max(512, 1 << (window - 1).bit_length()),
        low_hz=0.0,
        high_hz=min(8000.0, rate / 2),
        offset=0.001,
    )
