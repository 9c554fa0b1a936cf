"""Recordings of any length for jobs, and the times of jobs."""

import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import soundfile

from benchmarks import processes
from benchmarks.processes import BenchmarkError, ServerProcess
from earshot_client import Client, JobOptions

RATE: Final = 16_000
#: LibriSpeech utterances, 5 min in all; tests/data/README.md names the readers.
UTTERANCES: Final = processes.ROOT / "tests" / "data" / "speech"
SOUNDS: Final = JobOptions(sound_event_detection=True)
SPEECH: Final = JobOptions(speech_analysis=True)
GIVE_UP_SECONDS: Final = 900.0


def write_noise(file: Path, seconds: int) -> Path:
    """Write white noise as a 16-bit WAV, the same minute repeated; return the file."""
    minute = np.random.default_rng(1).integers(-8000, 8000, 60 * RATE, np.int16).tobytes()
    with wave.open(str(file), "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(2)
        audio.setframerate(RATE)
        for start in range(0, seconds, 60):
            audio.writeframesraw(minute[: 2 * RATE * min(60, seconds - start)])
    return file


def write_speech(file: Path, seconds: int) -> Path:
    """Write speech of several readers, at most 5 min, as a 16-bit WAV; return the file."""
    utterances = sorted(UTTERANCES.glob("*.ogg"))
    samples = np.concatenate([soundfile.read(utterance, dtype="int16")[0] for utterance in utterances])
    if len(samples) < seconds * RATE:
        raise BenchmarkError(f"{UTTERANCES} has less than {seconds} s of speech")
    soundfile.write(file, samples[: seconds * RATE], RATE, subtype="PCM_16")
    return file


def job_client(server: ServerProcess) -> Client:
    return Client(server.url, processes.KEY)


def time_job(client: Client, recording: bytes | Path, options: JobOptions) -> tuple[float, float]:
    """Post a recording and wait; return seconds until it was accepted, and from then to completion.

    Raises:
        BenchmarkError: One of its services failed.
    """
    began = time.perf_counter()
    job = client.analyze_file(recording, options)
    accepted = time.perf_counter()
    result = client.job_result(job.id, timeout=GIVE_UP_SECONDS)
    ended = time.perf_counter()
    if result.errors:
        raise BenchmarkError(f"job {job.id}: {result.errors}")
    return accepted - began, ended - accepted


def time_jobs(client: Client, recording: bytes, count: int) -> Iterator[tuple[float, float]]:
    """Run `count` jobs of sound events one after another; yield the times of each, as `time_job` returns them."""
    for _ in range(count):
        yield time_job(client, recording, SOUNDS)
