"""ONNX Runtime alone on the patches of a recording: `python -m benchmarks.bare.sounds FILE THREADS`.

The patches of one minute are made before the clock starts and reused. Each is scored alone, by as many threads as the
service uses, which is the least work that any service must do.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import soundfile

from benchmarks.measures import Sample
from infra import models
from streams.audio.framing import Framer
from streams.audio.warm import warm
from streams.models.sound_engine import OnnxSoundEngine
from topics.geometry import SESSIONS

PREPARED_S: Final = 60


def main() -> None:
    """Warm up, measure, print a `Sample` whose `done` is seconds of audio."""
    file, threads = Path(sys.argv[1]), int(sys.argv[2])
    engine = OnnxSoundEngine(models.directory("yamnet"))
    warm(engine)
    seconds = int(soundfile.info(file).duration)
    samples, rate = soundfile.read(file, frames=(PREPARED_S + 2) * 16_000, dtype="float32")
    framer = Framer(engine.manifest.input, SESSIONS.hop_ms, rate)
    framer.feed(samples)
    # Jobs score a patch every half second.
    patches = [framer.patch(number).copy() for number in range(2 * PREPARED_S) if framer.is_complete(number)]

    def scored(lane: int) -> None:
        for number in range(lane, 2 * seconds, threads):
            engine.scores(patches[number % len(patches)])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda lane: [engine.scores(patch) for patch in patches], range(threads)))
        cpu, began = time.process_time(), time.perf_counter()
        list(pool.map(scored, range(threads)))
        sample = Sample(seconds, time.perf_counter() - began, time.process_time() - cpu)
    sys.stdout.buffer.write(msgspec.json.encode(sample))


if __name__ == "__main__":
    main()
