"""The agent's listeners and its file: what is said of a source, and what a changed file changes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from infra.agent import agent as agents
from infra.agent import feed
from infra.agent.agent import Agent, Listener
from infra.agent.capture import Fault, Format, Heard
from infra.agent.clock import Clock
from infra.agent.flac import Note
from infra.agent.sources import Source, read
from infra.agent.spool import Spool
from infra.errors import Unfit
from tests.waiting import turn, until

SOURCE = Source("barn", url="rtsp://u:s3cret@10.0.0.5/a")
AAC = Format("aac", 48000, 1)
Play = Callable[[Callable[[Heard], object], Callable[[Format], object], Event], None]


class Played:
    """Stands in for `capture`: each call is the next connection of a camera."""

    def __init__(self, *connections: Play) -> None:
        self._connections = iter(connections)
        self.opened = 0

    def __call__(
        self, source: Source, clock: Clock, stopped: Event, deliver: Callable[[Heard], object], changed: Any
    ) -> None:
        self.opened += 1
        connection = next(self._connections, None)
        if connection is None:
            stopped.wait(60)
        else:
            connection(deliver, changed, stopped)


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "LOST_SECONDS", 0.1)
    monkeypatch.setattr(feed, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(agents, "Pauses", lambda: feed.Pauses(0.01, 0.05))


def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *connections: Play) -> tuple[list[Note], list[str], Played]:
    """Listen to these connections; return the notes in the spool, the lines of the log, and what was opened."""
    played = Played(*connections)
    monkeypatch.setattr(agents, "capture", played)

    async def scenario() -> list[Note]:
        spool = Spool(tmp_path / "spool", "barn")
        listening = asyncio.create_task(Listener(SOURCE, spool, Clock()).run())
        await until(lambda: played.opened > len(connections))
        await turn()
        listening.cancel()
        notes = list[Note]()
        while (block := await spool.next()) is not None:
            notes += block.notes
            spool.advance()
        return notes + ([] if spool.due is None else [spool.due])

    with capture_logs() as lines:
        notes = asyncio.run(scenario())
    return notes, [f"{line['event']} {line.get('reason', '')}".strip() for line in lines], played


def blocks(deliver: Callable[[Heard], object], first: int, count: int, silent: bool = False) -> None:
    for number in range(first, first + count):
        deliver(Heard(number * 500, bytes(16000), silent))


def test_lost_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted, note = Event(), Spool.note

    def noting(spool: Spool, one: Note) -> None:
        note(spool, one)
        noted.set()

    monkeypatch.setattr(Spool, "note", noting)

    def short(deliver: Callable[[Heard], object], changed: Callable[[Format], object], stopped: Event) -> None:
        changed(AAC)
        blocks(deliver, 0, 2)
        raise Fault("it cut the connection")

    def refused(deliver: Callable[[Heard], object], changed: Callable[[Format], object], stopped: Event) -> None:
        assert noted.wait(60)
        raise Fault("nothing listens at rtsp://10.0.0.5")

    def back(deliver: Callable[[Heard], object], changed: Callable[[Format], object], stopped: Event) -> None:
        monkeypatch.setattr(agents, "LOST_SECONDS", 60.0)  # A busy machine may take longer to connect again.
        changed(Format("pcm_alaw", 8000, 1))
        blocks(deliver, 100, 2)
        raise Fault("it cut the connection")

    def at_once(deliver: Callable[[Heard], object], changed: Callable[[Format], object], stopped: Event) -> None:
        blocks(deliver, 110, 2)
        stopped.wait(0.2)
        raise Fault("it cut the connection")

    notes, lines, _ = heard(tmp_path, monkeypatch, short, refused, refused, back, at_once)
    # The connection that was back at once is no event; the last one does not come back.
    assert [(note.event, note.reason) for note in notes] == [
        ("source.lost", "it cut the connection"),
        ("source.back", ""),
    ]
    assert notes[1].at_ms == 50_000
    assert lines == [
        "source opened",
        "source lost it cut the connection",
        "source lost nothing listens at rtsp://10.0.0.5",
        "source changed",
        "source back",
        "source lost it cut the connection",
        "source back",
        "source lost it cut the connection",
    ]


def test_digital_silence_is_said_once_and_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "LOST_SECONDS", 60.0)

    def muted(deliver: Callable[[Heard], object], changed: Callable[[Format], object], stopped: Event) -> None:
        blocks(deliver, 0, 2)
        blocks(deliver, 2, 121, silent=True)
        assert stopped.wait(30)

    def still(deliver: Callable[[Heard], object], changed: Callable[[Format], object], stopped: Event) -> None:
        blocks(deliver, 124, 40, silent=True)
        blocks(deliver, 164, 2)
        stopped.wait(0.1)
        assert not stopped.is_set()
        raise Fault("the end")

    notes, lines, _ = heard(tmp_path, monkeypatch, muted, still)
    assert [(note.event, note.at_ms) for note in notes] == [("source.silent", 1000), ("source.back", 82_000)]
    assert lines == [
        "source silent",
        "source lost digital silence: the microphone may be muted",
        "source back",
        "source back",
        "source lost the end",
    ]


def test_an_error_of_ours_is_logged_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(deliver: Callable[[Heard], object], changed: Callable[[Format], object], stopped: Event) -> None:
        raise ZeroDivisionError

    _, lines, played = heard(tmp_path, monkeypatch, broken, broken)
    assert lines == ["source failed", "source lost an error of the agent", "source failed"]
    assert played.opened == 3


def test_capture_that_is_stuck_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(deliver: Callable[[Heard], object], changed: Callable[[Format], object], stopped: Event) -> None:
        assert stopped.wait(60)

    monkeypatch.setattr(agents, "STUCK_SECONDS", 0.1)
    _, lines, _ = heard(tmp_path, monkeypatch, stuck)
    assert lines[0] == "source lost no audio for 0.1 s, and it cannot be interrupted"


TEXT = 'url = "http://127.0.0.1:1"\nkey_file = "key"\n'


def write(path: Path, *names: str, text: str = TEXT) -> None:
    path.write_text(text + "".join(f'[[sources]]\nname = "{name}"\nurl = "rtsp://10.0.0.5/{name}"\n' for name in names))


def test_reload_touches_what_changed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    monkeypatch.setattr(agents, "capture", played)
    (tmp_path / "key").write_text("the key of a project")
    path = tmp_path / "sources.toml"
    configured: list[int] = []

    async def reload(event: str) -> dict[str, Any]:
        before = len(lines)
        os.kill(os.getpid(), signal.SIGHUP)

        def said() -> list[Any]:
            return [line for line in lines[before:] if line["event"] == event]

        await until(said)
        return dict(said()[0])

    async def scenario() -> None:
        agent = Agent(path, read(path), lambda sources: configured.append(len(sources.sources)))
        with pytest.raises(Unfit, match="another agent uses the spool"):
            Agent(path, read(path), lambda sources: None)
        running = asyncio.create_task(agent.run())
        await until(lambda: played.opened == 3)
        write(path, "a", "c", "d")
        told = await reload("file reloaded")
        assert (told["started"], told["stopped"]) == (["d"], ["b"])
        write(path, "a", "a")
        assert "2 sources named 'a'" in (await reload("file not reloaded"))["reason"]
        write(path, "a", text=TEXT.replace(":1", ":2"))
        assert "restart the agent" in (await reload("file not reloaded"))["reason"]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 60)

    write(path, "a", "b", "c")
    folder = Source("recorder", folder="recordings")
    with path.open("a") as file:
        file.write('[[sources]]\nname = "recorder"\nfolder = "recordings"\n')
    (tmp_path / "spool" / folder.key).mkdir(parents=True)
    (tmp_path / "spool" / folder.key / "folder.sqlite").write_text("no database")
    with capture_logs() as lines:
        asyncio.run(scenario())
    (line,) = [line for line in lines if line["event"] == "source not started"]
    assert (line["source"], "file is not a database" in line["reason"]) == ("recorder", True)
    assert configured == [3]
    assert played.opened == 4
    assert lines[-1]["event"] == "agent stopped"
