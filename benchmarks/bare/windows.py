"""ONNX Runtime with its front end in a plain loop: `python -m benchmarks.bare.windows MODEL STREAMS CHUNKS [PACE]`.

One thread analyses the audio of the load, from decoded bytes to packed scores, one stream after another. With a pace in
chunks a second, it sleeps until each chunk is there, as a service does: caches and the processor cool down meanwhile.
"""

import math
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


def run(engine: OnnxSoundEngine, media: Media, chunks: list[list[bytes]], rounds: int, pace: float = math.inf) -> int:
    """Analyse `rounds` chunks of every stream; return the number of windows."""
    analyses = [Analysis(engine, SESSIONS, audio.RATE) for _ in chunks]
    began = time.perf_counter()
    for number in range(rounds):
        for place, (analysis, stream) in enumerate(zip(analyses, chunks, strict=True), number * len(chunks)):
            if (early := began + place / pace - time.perf_counter()) > 0:
                time.sleep(early)
            analysis.feed(decode_chunk(stream[number % len(stream)], media).samples)
    return sum(analysis.next_window for analysis in analyses)


def main() -> None:
    model, streams, rounds = sys.argv[1], *map(int, sys.argv[2:4])
    pace = float(sys.argv[4]) if sys.argv[4:] else math.inf
    engine, media = OnnxSoundEngine(models.directory(model)), parse(audio.CONTENT_TYPE)
    chunks = [[audio.chunk(stream, number) for number in range(audio.DISTINCT)] for stream in range(streams)]
    warm(engine)
    run(engine, media, chunks, 8)
    cpu, began = time.process_time(), time.perf_counter()
    windows = run(engine, media, chunks, rounds, pace)
    sample = Sample(windows, time.perf_counter() - began, time.process_time() - cpu)
    sys.stdout.buffer.write(msgspec.json.encode(sample))


if __name__ == "__main__":
    main()
