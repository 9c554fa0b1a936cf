"""Recordings of any length for jobs, and a client that posts them."""

from __future__ import annotations

import io
import json
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
import soundfile

from benchmarks import processes
from benchmarks.processes import BenchmarkError, ServerProcess

RATE: Final = 16_000
#: LibriSpeech utterances, 5 min in all; tests/data/README.md names the readers.
SPEECH: Final = processes.ROOT / "tests" / "data" / "speech"
SOUND_OPTIONS: Final = {"sound_event_detection": True}
SPEECH_OPTIONS: Final = {"speech_analysis": True}
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
    utterances = sorted(SPEECH.glob("*.ogg"))
    samples = np.concatenate([soundfile.read(utterance, dtype="int16")[0] for utterance in utterances])
    if len(samples) < seconds * RATE:
        raise BenchmarkError(f"{SPEECH} has less than {seconds} s of speech")
    soundfile.write(file, samples[: seconds * RATE], RATE, subtype="PCM_16")
    return file


class JobClient:
    def __init__(self, server: ServerProcess) -> None:
        self._http = httpx2.Client(
            base_url=f"http://127.0.0.1:{server.port}/api/v1",
            timeout=GIVE_UP_SECONDS,
            headers={"X-Api-Key": processes.KEY},
        )

    def __enter__(self) -> JobClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def post(self, recording: bytes | Path, options: dict[str, bool]) -> str:
        """Post a recording; return the job's id."""
        audio = recording.open("rb") if isinstance(recording, Path) else io.BytesIO(recording)
        files: Any = {"options": (None, json.dumps(options)), "audio": ("a.wav", audio, "audio/x-wav")}
        answer = self._http.post("/analyze_file", files=files)
        if answer.status_code != 200:
            raise BenchmarkError(f"analyze_file: {answer.status_code} {answer.text}")
        return str(answer.json()["job_id"])

    def wait(self, job: str) -> None:
        """Wait on the event stream until a job has completed; every entry must have succeeded."""
        with self._http.stream("GET", f"/jobs/{job}/stream") as events:
            if not any(line == "event: completed" for line in events.iter_lines()):
                raise BenchmarkError(f"job {job} did not complete")
        for name, entry in self._http.get(f"/jobs/{job}").json()["result"].items():
            if name != "metadata" and entry["status"] != "success":
                raise BenchmarkError(f"job {job}: {entry['error']}")

    def time_job(self, recording: bytes | Path, options: dict[str, bool]) -> tuple[float, float]:
        """Post a recording and wait; return seconds until it was accepted, and from then to completion."""
        began = time.perf_counter()
        job = self.post(recording, options)
        accepted = time.perf_counter()
        self.wait(job)
        return accepted - began, time.perf_counter() - accepted


def time_jobs(
    client: JobClient, recording: bytes, options: dict[str, bool], count: int
) -> Iterator[tuple[float, float]]:
    """Run `count` jobs one after another; yield the times of each, as `JobClient.time_job` returns them."""
    for _ in range(count):
        yield client.time_job(recording, options)
