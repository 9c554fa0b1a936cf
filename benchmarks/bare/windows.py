"""ONNX Runtime with its front end in a plain loop: `python -m benchmarks.bare.windows MODEL STREAMS CHUNKS`.

One thread analyses the audio of the load, from decoded bytes to packed scores, one stream after another.
"""

import sys
import time

import msgspec

from benchmarks import audio
from benchmarks.measures import Sample
from infra import models
from streams.audio.analysis import Analysis
from streams.audio.decode import decode_chunk
from streams.audio.warm import warm
from streams.models.sound_engine import OnnxSoundEngine
from topics.geometry import SESSIONS
from topics.media import Media, parse


def run(engine: OnnxSoundEngine, media: Media, chunks: list[list[bytes]], rounds: int) -> int:
    """Analyse `rounds` chunks of every stream; return the number of windows."""
    analyses = [Analysis(engine, SESSIONS, audio.RATE) for _ in chunks]
    windows = 0
    for number in range(rounds):
        for analysis, stream in zip(analyses, chunks, strict=True):
            windows += analysis.feed(decode_chunk(stream[number % len(stream)], media).samples).count
    return windows


def main() -> None:
    model, streams, rounds = sys.argv[1], *map(int, sys.argv[2:])
    engine, media = OnnxSoundEngine(models.directory(model)), parse(audio.CONTENT_TYPE)
    chunks = [[audio.chunk(stream, number) for number in range(audio.DISTINCT)] for stream in range(streams)]
    warm(engine)
    run(engine, media, chunks, 8)
    cpu, began = time.process_time(), time.perf_counter()
    windows = run(engine, media, chunks, rounds)
    sample = Sample(windows, time.perf_counter() - began, time.process_time() - cpu)
    sys.stdout.buffer.write(msgspec.json.encode(sample))


if __name__ == "__main__":
    main()
