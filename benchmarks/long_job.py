"""Writes a completed job to the log before the service starts: many sounds, many turns, and its audio."""

import asyncio
import random
from pathlib import Path
from typing import Final

from benchmarks.filling import append, make_project, opened_log
from benchmarks.recordings import RATE, write_noise
from infra import models
from streams.models import manifest
from topics import keys, record_codec
from topics.catalog import JOB_COMMANDS, JOB_RESULTS
from topics.jobs import payloads
from topics.jobs.options import Options, Service
from topics.jobs.payloads import Segment, Sounds, Transcript, Word
from topics.jobs.records import PART_BYTES, Accepted, Finished, JobCommand, JobResult, Part, Portion, Source, Started
from topics.scores import ZERO

RUN: Final = "fill"
#: Windows, and turns, per portion.
WINDOWS: Final = 1000
TURNS: Final = 500
#: Milliseconds from one turn to the next, and words per turn.
TURN_MS: Final = 1800
WORDS: Final = 12
KEEP_MS: Final = 24 * 3600 * 1000


def fill(data: Path, seconds: int) -> str:
    """Write a job of this many seconds; return its id."""
    return asyncio.run(_fill(data, make_project(data), seconds))


async def _fill(data: Path, project: str, seconds: int) -> str:
    log, job = opened_log(data), keys.new_id()
    recording = write_noise(data / "recording.wav", seconds).read_bytes()
    parts = [recording[at : at + PART_BYTES] for at in range(0, len(recording), PART_BYTES)]
    options = Options(sound_event_detection=True, speech_analysis=True, word_times=True)
    source = Source("audio/wav", "wav", len(recording), RATE, 1, "an hour.wav")
    accepted = Accepted(RUN, RUN, len(parts), project, RUN, options, source, "fill", b"fill", keep_audio_ms=KEEP_MS)
    commands: list[JobCommand] = [Part(f"{RUN}{number}", RUN, number, part) for number, part in enumerate(parts)]
    for command in (*commands, accepted):
        await append(log, JOB_COMMANDS, job, record_codec.encode(command))
    for service, portions in ((Service.SOUND, _sounds(seconds)), (Service.SPEECH, _turns(seconds))):
        results: list[JobResult] = [Started(service, RUN)]
        results += [Portion(service, RUN, number, data) for number, data in enumerate(portions)]
        results.append(Finished(service, RUN, len(portions), audio_ms=seconds * 1000, model="fill"))
        for result in results:
            await append(log, JOB_RESULTS, job, record_codec.encode(result))
    await log.close()
    return job


def _sounds(seconds: int) -> list[bytes]:
    """Return windows in which three sounds come and go: about a thousand events an hour."""
    model, seed = manifest.read(models.directory("yamnet")), random.Random(1)
    width = len(model.tags)
    scores = bytearray(width * seconds)
    for start in range(0, seconds - 4, 1):
        if seed.random() < 1 / 2:
            tag, level = seed.randrange(40), seed.randrange(ZERO, 256)
            for window in range(start, start + seed.randrange(1, 4)):
                scores[window * width + tag] = level
    return [
        payloads.encode(Sounds(first, model.model_id, width, bytes(scores[first * width : (first + WINDOWS) * width])))
        for first in range(0, seconds, WINDOWS)
    ]


def _turns(seconds: int) -> list[bytes]:
    """Return consecutive turns of four speakers with their words."""
    each = TURN_MS // WORDS
    turns = []
    for number in range(seconds * 1000 // TURN_MS):
        at = number * TURN_MS
        words = tuple(Word(at + each * word, at + each * (word + 1), f"word{word}") for word in range(WORDS))
        text = " ".join(word.text for word in words)
        turns.append(Segment(at, at + TURN_MS - 100, text, number % 4, f"Unknown {number % 4}", words=words))
    return [
        payloads.encode(Transcript(tuple(turns[first : first + TURNS]), languages=("en",)))
        for first in range(0, len(turns), TURNS)
    ]
