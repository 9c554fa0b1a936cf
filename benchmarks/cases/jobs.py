"""Jobs: the time that the service adds to its engines, and the effect of a hanging engine on other jobs."""

import asyncio
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import httpx2

from benchmarks import processes
from benchmarks.cases.setup import Setup, running_service
from benchmarks.measures import Row, Sample, alternate, percentile, value_row
from benchmarks.recordings import SOUNDS, SPEECH, job_client, time_job, time_jobs, write_noise, write_speech
from earshot_client import Client
from streams import cores
from streams.processes.zygote_process import Zygote
from streams.workers import COMMAND
from streams.workers.decoded_file import FileDecoder
from streams.workers.messages import memory_bytes, slot_bytes
from streams.workers.prober import RecordingProber
from streams.workers.workers import Workers
from tests.ports import free_port

HOUR: Final = 3600
MINUTE: Final = 60
SOUND_BAR: Final = 0.60
SPEECH_BAR: Final = 1.2
HANGING_BAR: Final = 1.2
ACCEPT_BAR_MS: Final = 30.0
ACCEPTED: Final = 60
OTHERS: Final = 60


def sounds(setup: Setup) -> Iterator[Row]:
    """Yield the speed of sound events on an hour of audio, relative to ONNX Runtime alone."""
    seconds, threads = setup.size(HOUR), cores.usable()
    for log in setup.logs():
        with running_service(log, model="yamnet") as (server, directory), job_client(server) as client:
            recording = write_noise(directory / "hour.wav", seconds)

            def ours(client: Client = client, recording: Path = recording) -> Sample:
                return Sample(seconds, time_job(client, recording, SOUNDS)[1], 1.0)

            def bare(recording: Path = recording) -> Sample:
                return processes.run_bare("sounds", str(recording), str(threads))

            pairs = alternate(ours, bare, min(setup.pairs, 3))
            ratios = [ours.per_second / bare.per_second for ours, bare in pairs]
            rates = {
                "audio s/s": median(ours.per_second for ours, _ in pairs),
                "bare audio s/s": median(bare.per_second for _, bare in pairs),
            }
            name = f"sound events of {seconds} s, {log}"
            yield Row(name, median(ratios), min(ratios), max(ratios), bar=SOUND_BAR, beside=rates)


def speech(setup: Setup) -> Iterator[Row]:
    """Yield the time of a job, relative to its engine alone with the same minute of speech over HTTP."""
    port = free_port()
    for log in setup.logs():
        with (
            processes.temporary_directory() as scratch,
            processes.engines(scratch, port),
            running_service(log, speech_url=f"http://127.0.0.1:{port}", speech_timeout="300") as (server, directory),
            job_client(server) as client,
        ):
            audio = write_speech(directory / "talk.wav", MINUTE).read_bytes()
            time_job(client, audio, SPEECH), _engine_seconds(port, audio)
            pairs = [
                (sum(time_job(client, audio, SPEECH)), _engine_seconds(port, audio)) for _ in range(min(setup.pairs, 3))
            ]
            ratios = [ours / alone for ours, alone in pairs]
            times = {"job s": median(ours for ours, _ in pairs), "engine s": median(alone for _, alone in pairs)}
            name = f"speech of {MINUTE} s, {log}"
            yield value_row(name, ratios, "ratio", SPEECH_BAR, times)


def _engine_seconds(port: int, audio: bytes) -> float:
    began = time.perf_counter()
    answer = httpx2.post(
        f"http://127.0.0.1:{port}/v1/audio/transcriptions",
        files={"file": ("a.wav", audio, "audio/wav")},
        data={"response_format": "verbose_json"},
        timeout=300,
    )
    if answer.status_code != 200:
        raise processes.BenchmarkError(f"the engine answered {answer.status_code}: {answer.text}")
    return time.perf_counter() - began


def hanging(setup: Setup) -> Iterator[Row]:
    """Yield the 95th percentile of other jobs' times while the speech engine hangs, relative to before."""
    others = setup.size(OTHERS)
    for log in setup.logs():
        with (
            processes.temporary_directory() as scratch,
            processes.bare("engine", scratch) as engine,
            running_service(log, speech_url=engine.url, speech_timeout="120") as (server, directory),
            job_client(server) as client,
        ):
            recording = write_noise(directory / "ten.wav", 10).read_bytes()
            spoken = write_speech(directory / "talk.wav", 10)
            list(time_jobs(client, recording, 5))
            before = [sum(times) for times in time_jobs(client, recording, others)]
            for _ in range(16):
                client.analyze_file(spoken, SPEECH)
            time.sleep(3.0)  # until each of them waits for the engine
            during = [sum(times) for times in time_jobs(client, recording, others)]
            p95 = [1000 * percentile(times, 0.95) for times in (before, during)]
            beside_ms = {"before ms": p95[0], "during ms": p95[1]}
            yield value_row(f"p95 while an engine hangs, {log}", [p95[1] / p95[0]], "ratio", HANGING_BAR, beside_ms)


def accepting(setup: Setup) -> Iterator[Row]:
    """Yield the milliseconds until a 10 s file is accepted, minus those of the probe and of one disk flush."""
    count = setup.size(ACCEPTED)
    for log in setup.logs():
        with running_service(log) as (server, directory), job_client(server) as client:
            file = write_noise(directory / "ten.wav", 10)
            recording = file.read_bytes()
            list(time_jobs(client, recording, 5))
            milliseconds = [1000 * accepted for accepted, _ in time_jobs(client, recording, count)]
            probed = asyncio.run(_probe_ms(file, count))
            flushed = [_flush_ms(directory / "flush", recording) for _ in range(count)]
            beyond = median(milliseconds) - median(probed) - median(flushed)
            parts = {"accept ms": median(milliseconds), "probe ms": median(probed), "flush ms": median(flushed)}
            yield value_row(f"accepting a file of 10 s, {log}", [beyond], "ms", ACCEPT_BAR_MS, parts)


async def _probe_ms(file: Path, count: int) -> list[float]:
    zygote = Zygote(COMMAND)
    workers = Workers(1, partial(zygote.fork, memory_bytes(slot_bytes(0))))
    await workers.start()
    prober = RecordingProber(FileDecoder(workers).open_file)
    seconds = []
    with file.open("rb") as audio:
        for _ in range(count + 3):
            began = time.perf_counter()
            await prober.probe(audio.fileno(), None)
            seconds.append(1000 * (time.perf_counter() - began))
    await prober.close()
    await workers.stop()
    zygote.stop()
    return seconds[3:]


def _flush_ms(file: Path, data: bytes) -> float:
    began = time.perf_counter()
    with file.open("wb") as out:
        out.write(data)
        out.flush()
        os.fdatasync(out.fileno())
    return 1000 * (time.perf_counter() - began)
