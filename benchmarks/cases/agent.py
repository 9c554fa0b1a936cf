"""`earshot agent`: what a source costs, and how fast it catches up after the service was away."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import processes, procfs
from benchmarks.cases.setup import Setup
from benchmarks.measures import Row, value_row
from earshot_client import Client
from tests.agents import Agent
from tests.cameras import Camera, cameras
from tests.process import ServiceProcess
from tests.sink import sink

SOURCES: Final = 64
AWAY_SOURCES: Final = 16
AWAY_SECONDS: Final = 600
#: Seconds for an agent to start, and of the measurement.
START_SECONDS: Final = 8.0
SECONDS: Final = 20
#: Five times real time.
CATCH_UP_BAR: Final = 1 / 5
FORMS: Final = (("aac", 48000), ("pcma", 8000), ("l16", 16000))
RATE: Final = 16000


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the processor time and memory of a source, and the time in which a backlog is sent."""
    for codec, rate in FORMS:
        yield from _cost(setup, codec, rate)
    with processes.temporary_directory() as directory:
        yield _away(setup, directory)


def _cost(setup: Setup, codec: str, rate: int) -> Iterator[Row]:
    seconds, memory = [], []
    for count in (1, setup.size(SOURCES)):
        with processes.temporary_directory() as directory, cameras() as served, sink() as service:
            urls = {f"cam{number}": served.add(f"cam{number}", Camera(codec, rate)) for number in range(count)}
            agent = Agent(directory, service.url, urls)
            agent.start()
            assert agent.process is not None
            time.sleep(START_SECONDS)
            before = procfs.cpu_seconds([agent.process.pid])
            time.sleep(setup.size(SECONDS, 5))
            seconds.append((procfs.cpu_seconds([agent.process.pid]) - before) / setup.size(SECONDS, 5))
            memory.append(procfs.proportional_bytes(agent.process.pid) / 1e6)
            agent.stop()
    more = setup.size(SOURCES) - 1
    name = f"source of the agent, RTSP {codec} {rate}"
    beside = {"% of a core with one": 100 * seconds[0]}
    yield value_row(f"{name}, processor", [100 * (seconds[1] - seconds[0]) / more], "% of a core", None, beside)
    beside = {"MB with one": memory[0]}
    yield value_row(f"{name}, memory", [(memory[1] - memory[0]) / more], "MB", None, beside)


def _away(setup: Setup, directory: Path) -> Row:
    """Kill a service under 16 cameras; return the seconds that it needs for each second that it was away."""
    away = setup.size(AWAY_SECONDS)
    with cameras() as served, ServiceProcess(directory / "data") as service:
        key = service.project("sources")
        them = {f"cam{number}": Camera() for number in range(AWAY_SOURCES)}
        agent = Agent(directory, service.url, {name: served.add(name, camera) for name, camera in them.items()}, key)
        client = Client(service.url, key)

        def left() -> float:
            """Return the seconds of audio that were sent by cameras and not analysed yet."""
            sent = sum(one.count for camera in them.values() for one in camera.sent) / RATE
            return sent - sum(session.seconds for session in client.sessions())

        agent.start()
        time.sleep(START_SECONDS)
        service.kill()
        time.sleep(away)
        kept = sum(path.stat().st_size for path in agent.files()) / 1e6
        service.start()
        assert service.process is not None
        pid = service.process.pid
        began, spent, backlog = time.monotonic(), procfs.cpu_seconds([pid]), left()
        while agent.files():
            time.sleep(0.2)
        stored = time.monotonic() - began
        while left() > AWAY_SOURCES * 2:
            time.sleep(1)
        done, spent = time.monotonic() - began, procfs.cpu_seconds([pid]) - spent
        windows = 2 * (backlog + done * AWAY_SOURCES)
        for camera in them.values():
            served.kill(camera)
        time.sleep(2)
        agent.stop()
        time.sleep(2)
        # The last half second of each session is no whole window.
        lost = max(0.0, left() - AWAY_SOURCES)
        client.close()
    beside = {"stored after, s": stored, "s lost": lost, "MB kept": kept, "CPU ms a window": 1000 * spent / windows}
    return value_row(f"{AWAY_SOURCES} sources, analysed after {away} s away", [done / away], "x", CATCH_UP_BAR, beside)
