"""`earshot agent` and a running service: names, labels, capture times, and what happened to the source."""

import subprocess
import sys
from datetime import datetime
from pathlib import Path

from earshot_client import AlarmRule, Client, SourceBack, SourceLost, WindowHeard
from tests.agents import Agent
from tests.cameras import Camera, cameras
from tests.conftest import NUMBERS
from tests.process import ServiceProcess
from tests.waiting import wait_for


def unix(time: str | None) -> float:
    assert time is not None
    return datetime.fromisoformat(time).timestamp()


def test_source_as_the_service_shows_it(service: ServiceProcess, tmp_path: Path) -> None:
    key = service.project(f"sources {next(NUMBERS)}")
    camera, barn = Camera("pcma", 8000, password="s3cret!"), Camera(dead=True)
    with cameras() as served, Client(service.url, key) as client:
        client.add_alarm_rule(AlarmRule(name="gone", when="source", events=("source.lost",), source="Barn"))
        urls = {"Front door": served.add("door", camera).replace("!", "%21"), "Barn": served.add("barn", barn)}
        agent = Agent(tmp_path, service.url, urls, key)
        command = [sys.executable, "-m", "infra.cli", "agent", "check", str(agent.file)]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert tried.stdout.startswith("Front door  pcm_alaw, 8000 Hz, mono, -1"), tried.stdout + tried.stderr
        assert "dBFS): " in tried.stdout, "the sounds that the service heard"
        assert not list(client.sessions()), "the session of a check is deleted"

        agent.start()
        session = wait_for(lambda: [one for one in client.sessions() if one.file_name == "Front door"])[0]
        assert session.kind == "stream"
        kinds = ("window", "source.lost", "source.back")
        with client.socket(session.id, listen=True, after="start", events=kinds, timeout=60) as socket:
            windows, told = list[WindowHeard](), list[SourceLost | SourceBack]()
            for event in socket:
                match event:
                    case WindowHeard():
                        windows.append(event)
                        if len(windows) == 3:
                            served.kill(camera)
                            # The barn is away from the start, so its session begins with that.
                            (alarm,) = wait_for(lambda: list(client.alarms()))
                            assert (alarm.source, alarm.what) == ("Barn", "source.lost")
                            barn.dead = False
                        elif len(told) == 2:
                            break
                    case SourceLost() | SourceBack():
                        told.append(event)
                        camera.dead = False
        with client.socket(alarm.session_id, listen=True, after="start", events=kinds, timeout=60) as socket:
            assert [next(iter(socket)).kind for _ in range(3)] == ["source.lost", "source.back", "window"]
        agent.stop()

    lost, back = told
    assert isinstance(lost, SourceLost)
    assert isinstance(back, SourceBack)
    _, first, second = camera.sent  # The first one was that of the check.
    assert lost.reason
    # On a busy machine an agent reads late; it tells of a loss after five seconds.
    assert abs(unix(lost.time) - first.began - first.count / 8000) < 3
    assert abs(unix(back.time) - second.began) < 3
    for window in windows[:3]:
        assert abs(unix(window.captured_at) - first.began - window.start) < 3
