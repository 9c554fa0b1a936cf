"""`earshot agent` and mediamtx, which passes cameras on: the service gets all that mediamtx sent."""

from __future__ import annotations

import random
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.agent.capture import RATE, READ_SECONDS
from tests.agents import Agent
from tests.cameras import Camera, cameras, noise
from tests.lengths import SEED, length
from tests.mediamtx import Mediamtx, Relay
from tests.ports import serving
from tests.recovery.test_agent import SECRET, received_seconds
from tests.sink import sink
from tests.waiting import wait_for

FAULTS = length("MEDIAMTX_FAULTS", 0)
FORMS = [
    *(("l16", rate) for rate in (8000, 16000, 48000)),
    *(("aac", rate) for rate in (16000, 44100, 48000)),
    *(("pcma", 8000), ("pcmu", 8000), ("opus", 48000)),
]
#: They keep their format, so that their samples can be compared.
SAME = {"cam0", "cam1"}
#: Bytes that each source brings after a fault before the next one, up to a second.
ENOUGH = 5000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FAULTS, reason="it takes ten minutes: make soak NAMES=agent"),
    pytest.mark.timeout(300 + 60 * FAULTS),
]


def captured(stored: bytes, camera: Camera) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return when each sample of a camera was captured, Unix times, by its value: its position is its time."""
    first = camera.sent[0].first
    whole = noise(first, camera.sent[-1].first + camera.sent[-1].count - first, RATE)
    data, samples, times, place = whole.tobytes(), np.frombuffer(stored, "<i2"), list[np.ndarray[Any, Any]](), 0
    while len(samples):
        found = data.find(samples[:32].tobytes(), 2 * place)
        assert found >= 0, "what was stored is not the camera's, or not in order"
        most = min(len(samples), len(whole) - (place := found // 2))
        differ = np.flatnonzero(samples[:most] != whole[place : place + most])
        count = int(differ[0]) if len(differ) else most
        times.append((first + np.arange(place, place + count)) / RATE)
        samples, place = samples[count:], place + count
    return np.concatenate(times)


def test_no_audio_that_mediamtx_sent_is_lost(tmp_path: Path) -> None:
    """It is killed and paused, and cameras change their codec and rate, by seed; the agent is never restarted.

    What it sent is what a relay took from it and gave to the agent.
    """
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    #: When mediamtx could lose audio itself, from when to when.
    faults: list[tuple[float, float]] = []
    with cameras() as served, sink() as service:
        urls = {f"cam{number}": served.add(f"cam{number}", Camera(password=SECRET)) for number in range(4)}
        them = served.cameras
        with Mediamtx(tmp_path, urls, SECRET) as server, serving(Relay(server.port)) as relayed:
            ours = {name: f"rtsp://admin:s3cret%21@127.0.0.1:{relayed.port}/{name}" for name in them}
            agent = Agent(tmp_path, service.url, ours)
            agent.start()
            try:
                wait_for(lambda: all(service.of(name) for name in them))
                for number in range(FAULTS):
                    # The agent's pauses begin anew after five seconds.
                    time.sleep(chance.choice([0, 1, 6]))
                    fault, began = chance.choice(["kill", "stall", "change"]), time.time()
                    what, seconds = "", chance.uniform(0.05, 2)
                    if fault == "stall":
                        seconds = chance.choice([1, 3, 12])
                        server.stall(True)
                        time.sleep(seconds)
                        server.stall(False)
                    elif fault == "kill":
                        server.kill()
                        time.sleep(seconds)
                        server.start()
                    else:
                        camera = them[what := chance.choice(sorted(them.keys() - SAME))]
                        served.kill(camera)
                        camera.codec, camera.rate = chance.choice(FORMS)
                        time.sleep(seconds)
                        camera.dead = False
                    # It finds out by now whether its cameras were away for too long.
                    time.sleep(1)
                    before = {name: relayed.size(name) for name in them}
                    wait_for(lambda b=before: all(relayed.size(name) > b[name] + ENOUGH for name in them), 100)  # type: ignore[misc]
                    ended = time.time()
                    print(f"{number} {fault} {what} {seconds:.1f} s, {ended - began:.1f} s in all", flush=True)
                    if fault == "kill" or seconds > READ_SECONDS:
                        faults.append((began, ended))
                server.kill()
                time.sleep(1)
                agent.stop()
            finally:
                agent.kill()
        for name, camera in them.items():
            (stored,), sent = service.of(name), relayed.of(name)
            got, passed = received_seconds(service, name), sum(one.seconds for one in sent)
            print(f"{name}: {len(sent)} connections, {passed:.3f} s sent, {got:.3f} s stored")
            assert got == pytest.approx(passed, abs=0.001 * len(sent))  # A resampler rounds.
            if name in SAME:
                assert stored.pcm == b"".join(one.pcm for one in sent)
                times = captured(stored.pcm, camera)
                for last in np.flatnonzero(np.diff(times) > 1.5 / RATE):
                    assert any(began < times[last] + 0.5 and times[last + 1] < ended + 0.5 for began, ended in faults)
                told = {chunk: one["time"] for chunk, one in stored.told if one["type"] == "captured"}
                at, expected = 0, 0.0
                for number, chunk in enumerate(stored.chunks):
                    if number in told:
                        expected = datetime.fromisoformat(told[number]).timestamp()
                    assert abs(expected - times[at]) < 0.05
                    at, expected = at + len(chunk) // 2, expected + len(chunk) / 2 / RATE
    assert SECRET not in agent.log.read_text()
    print(f"{FAULTS} faults, {len(agent.lines('source lost'))} times lost, 0 samples lost")
