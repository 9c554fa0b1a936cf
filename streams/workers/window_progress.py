"""Analyses sessions whose chunks are independent windows."""

from collections.abc import Sequence

from numpy import concatenate, empty, float32

from streams.audio import decode
from streams.audio.analysis import score_alone, window_samples
from streams.audio.decode import DecodedAudio
from streams.workers.messages import ScoredWindows
from streams.workers.progress import STEP_SAMPLES, ChunkProgress, scored
from topics.errors import AudioError
from topics.sessions.records import Cursor


class WindowProgress(ChunkProgress):
    """A session fed by `/predict`: each chunk is an independent window. One thread at a time."""

    reading = False

    def take(self, chunks: Sequence[bytes]) -> ScoredWindows:
        first, packed, frames, error = self.taken, b"", 0, None
        try:
            for data in chunks:
                if frames >= STEP_SAMPLES:
                    break
                audio, more = self._beginning(data)
                frames += more
                if self.meter is not None:
                    length = window_samples(self.geometry, audio.rate)
                    self.meter.feed(audio.rate, self.taken * length, audio.samples[:length])
                packed += score_alone(self.engine, self.geometry, audio, self._hearing)
                self.taken += 1
        except AudioError as cause:
            error = f"window {self.taken}: {cause}"
        return scored(self, first, packed, Cursor(self.taken, self.taken), error)

    def _beginning(self, data: bytes) -> tuple[DecodedAudio, int]:
        """Decode a chunk; return the part its window needs and the chunk's number of frames."""
        audio = self.open_chunk(data)
        if isinstance(audio, DecodedAudio):
            return audio, len(audio.samples)
        frames, beginning = 0, [empty(0, float32)]
        with audio:
            for block in audio.blocks():
                if frames < window_samples(self.geometry, audio.rate):
                    beginning.append(block)
                frames += len(block)
                if frames > decode.MAX_CHUNK_FRAMES:
                    raise AudioError(f"one chunk holds more than {decode.MAX_CHUNK_FRAMES} frames; use shorter chunks")
        return DecodedAudio(audio.rate, concatenate(beginning)), frames

    def finish(self, chunks: Sequence[bytes] = (), whole: bool = True) -> ScoredWindows:
        return scored(self, self.taken, b"", Cursor(self.taken, self.taken))

    def close(self) -> None: ...
