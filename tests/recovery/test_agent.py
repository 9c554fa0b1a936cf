"""`earshot agent` as a process: cameras that fail, a service that is away, and an agent that is killed lose nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from infra.agent import flac
from infra.agent.capture import RATE
from tests.agents import Agent
from tests.cameras import Camera, Cameras, cameras
from tests.lengths import SEED, length
from tests.sink import Sink, Stored, sink
from tests.waiting import wait_for

FAULTS = length("FAULTS", 8)
SOURCES = length("SOURCES", 2)
AWAY = length("AWAY", 16)
#: Whether it runs alone, or beside other tests, on a busy machine.
ALONE = FAULTS >= 50
#: Seconds for an agent to start.
STARTING = 5.0 if ALONE else 45.0
#: Seconds by which an agent may read late: its capture times are off by as much, and it does not read what waits when
#: it is stopped.
MOST_LATE = 0.05 if ALONE else 4.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 20 * FAULTS + 2 * AWAY)]

SECRET = "s3cret!"
FORMS = [("l16", 16000), ("l16", 48000), ("aac", 48000), ("aac", 16000), ("pcma", 8000), ("opus", 48000)]


@contextmanager
def streaming(directory: Path, count: int) -> Iterator[tuple[Cameras, Sink, Agent]]:
    """Run cameras named `cam0`... and a service; the agent is not started."""
    with cameras() as served, sink() as service:
        urls = {f"cam{number}": served.add(f"cam{number}", Camera(password=SECRET)) for number in range(count)}
        agent = Agent(directory, service.url, {name: url.replace("!", "%21") for name, url in urls.items()})
        try:
            yield served, service, agent
        finally:
            if agent.process is not None and agent.process.poll() is None:
                agent.kill()
        assert SECRET not in agent.log.read_text()
        assert "%21" not in agent.log.read_text()


def sent_pcm(camera: Camera) -> bytes:
    """Return what a camera with 16 kHz PCM has sent over all connections."""
    return b"".join(one.pcm for one in camera.sent)


def times_off(stored: Stored, camera: Camera) -> float:
    """Return by how many seconds the capture time of any chunk is off, at most; the chunks are all that it sent."""
    told = {chunk: one["time"] for chunk, one in stored.told if one["type"] == "captured"}
    worst, at, spans = 0.0, 0, iter(camera.sent)
    span, begins = next(spans), 0
    for number, chunk in enumerate(stored.chunks):
        if number in told:
            expected, since = datetime.fromisoformat(told[number]).timestamp(), at
        while at >= begins + span.count:
            begins, span = begins + span.count, next(spans)
        worst = max(worst, abs(expected + (at - since) / RATE - span.began - (at - begins) / RATE))
        at += len(chunk) // 2
    return worst


def end(served: Cameras, service: Sink, agent: Agent) -> None:
    """Kill all cameras, stop the agent once the service knows that, which comes after all that they sent."""
    for camera in served.cameras.values():
        served.kill(camera)

    def told(name: str) -> bool:
        stored = service.of(name)[-1]
        at, last = stored.told[-1]
        return at == len(stored.chunks) and last.get("event") == "source.lost"

    wait_for(lambda: all(map(told, served.cameras)))
    agent.stop()


def received_seconds(service: Sink, name: str) -> float:
    return sum(len(stored.pcm) for stored in service.of(name)) / 2 / RATE


def test_cameras_that_fail_lose_only_what_they_do_not_send(tmp_path: Path) -> None:
    """Cameras are killed, stalled and restarted with other codecs and rates by seed; the agent is never restarted."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    with streaming(tmp_path, 4) as (served, service, agent):
        them = served.cameras
        agent.start()
        wait_for(lambda: all(service.of(name) for name in them))
        for number in range(FAULTS):
            # The first two keep their format, so that their samples can be compared.
            name = f"cam{number % 4}"
            camera, fault = them[name], chance.choice(["kill", "stall", "change" if number % 4 > 1 else "kill"])
            print(f"{name}: {fault}")
            if fault == "stall":
                camera.stalled = True
                time.sleep(chance.choice([1, 3, 12 if ALONE else 2]))
                sent = len(camera.sent)
                camera.stalled = False
            else:
                served.kill(camera)
                if fault == "change":
                    camera.codec, camera.rate = chance.choice(FORMS)
                time.sleep(chance.uniform(0.05, 2))
                sent = len(camera.sent)
                camera.dead = False
            wait_for(lambda camera=camera, sent=sent: len(camera.sent) > sent and camera.sent[-1].count, 60)  # type: ignore[misc]
        time.sleep(3)
        end(served, service, agent)
        for name, camera in them.items():
            (stored,) = service.of(name)
            if name in ("cam0", "cam1"):
                assert stored.pcm == sent_pcm(camera)
                # A chunk that was cut by a stall began before it.
                assert times_off(stored, camera) < MOST_LATE
            expected = sum(one.count / one.rate for one in camera.sent)
            # A resampler and an encoder keep some milliseconds of each connection.
            assert received_seconds(service, name) == pytest.approx(expected, abs=0.05 * len(camera.sent))
    lost = len(agent.lines("source lost"))
    print(
        f"{FAULTS} faults, {lost} times lost, {sum(len(one.sent) for one in them.values())} connections, 0 samples lost"
    )


def test_service_that_is_away_gets_everything_once(tmp_path: Path) -> None:
    """In order, and faster than real time, though the agent is stopped and killed meanwhile."""
    with streaming(tmp_path, SOURCES) as (served, service, agent):
        them = served.cameras

        def connected(number: int, seconds: float) -> None:
            wait_for(lambda: all(len(one.sent) == number for one in them.values()))
            wait_for(lambda: all(one.sent[-1].count > seconds * RATE for one in them.values()))

        agent.start()
        connected(1, 3)
        assert not agent.files()
        service.stop()
        time.sleep(AWAY)
        agent.kill()
        agent.start()
        connected(2, 2 + MOST_LATE)
        agent.stop()
        kept = sum(len(block.data) for path in agent.files() for block in flac.read(path)) / 2 / RATE
        service.start()
        agent.start()
        began = time.monotonic()
        wait_for(lambda: not agent.files(), max(60, AWAY))
        caught_up = time.monotonic() - began
        print(f"{SOURCES} sources, {kept:.0f} s kept, caught up in {caught_up:.1f} s")
        # At the speed of the sources it would never catch up.
        assert caught_up < AWAY / 5 + STARTING
        connected(3, 2 + MOST_LATE)
        agent.kill()
        agent.start()
        connected(4, 3)
        end(served, service, agent)
        assert not agent.files()
        for name, camera in them.items():
            (stored,) = service.of(name)
            at = 0
            pcm = np.frombuffer(stored.pcm, "<i2")
            # The memory of an agent that is killed is lost: less than 10 s, and a second if all is well.
            for sent, most in zip(camera.sent, (10, MOST_LATE, 1 + MOST_LATE, 0), strict=True):
                came = pcm[at : at + sent.count]
                differ = np.flatnonzero(np.frombuffer(sent.pcm, "<i2")[: len(came)] != came)
                got = int(differ[0]) if len(differ) else len(came)
                assert (sent.count - got) / RATE <= most + 0.1
                sent.count = got
                at += got
            assert at == len(pcm)
            assert times_off(stored, camera) < MOST_LATE
