"""Events of a session, derived from its rows: the same for every reader, from every cursor."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed

from app.sessions import commands, cursors, socket_events
from app.sessions.cursors import FIRST, parse
from app.sessions.rendering import EventRenderer
from app.sessions.socket_events import EventReader
from tests import sse
from tests.contract.api import RAW, silence, tone, wav
from tests.unit.app.conftest import KEY, House
from tests.unit.app.jobs.conftest import Exchange
from tests.unit.app.sessions.sockets import END, MAKING, Place, opened, path_of, place, refused
from tests.waiting import turn, until
from topics.choices import Choices, SoundRule
from topics.ports.directory import Principal
from topics.sessions.records import Chunk, Deleted, Expired, Sealed, SessionCommand, SourceNoted

#: Types of events whose state clients mirror.
MIRRORED: Final = "sound.started,sound.ended,session"


async def patch(house: House, session: str, body: object) -> tuple[int, str]:
    """Change a session; return the status and the error."""
    answer = await Exchange(house, f"/audio_sessions/{session}", "PATCH", json.dumps(body).encode()).end()
    return answer.status, answer.json["error"] if answer.body else ""


async def analysed(house: House, session: str) -> None:
    """Wait until a session has its last window."""
    await until(lambda: house.sessions.sessions[session].head.finished)


async def test_sound_events_start_and_end(house: House) -> None:
    session = await opened(house)
    audio = tone(1) + silence(3) + tone(1)
    query = "?events=sound.started,sound.ended,session&after=start"
    async with place(house) as here, here.greeted(path_of(session, query)) as line:
        await line.socket.send(audio)
        await line.socket.send(END)
        messages = await line.rest()
    told = [one for one in messages if one["type"].startswith("sound.") or one["type"] == "session"]
    speech = [(one["type"], one["start_time"], one.get("end_time")) for one in told if one.get("name") == "Speech"]
    assert speech == [
        ("sound.started", 0.5, None),
        ("sound.ended", 0.5, 1.5),
        ("sound.started", 3.5, None),
        ("sound.ended", 3.5, 5),
    ]
    assert told[0]["probability"] > 0.5
    kinds = [one["type"] for one in told]
    assert kinds.index("session") < len(kinds) - 1, "sounds that are still on end with the session"


class Readings:
    """Reads the events of a session from its rows, of all types."""

    def __init__(self, house: House, session: str) -> None:
        self.house, self.session = house, session
        self.renderer = EventRenderer(house.sessions, 1 << 20)

    def at(self, place: cursors.Place) -> EventReader:
        opened = self.house.sessions.sessions[self.session].opened
        return EventReader(self.renderer, self.session, opened, place, frozenset(socket_events.TYPES))

    def rest(self, reader: EventReader) -> list[socket_events.Event]:
        view, found = self.house.sessions.view(self.session), []
        assert view is not None
        while reader.more(view):
            found += reader.step(view, None)
        return found

    def hold(self, whole: list[socket_events.Event]) -> None:
        """Check that readers from the start and from every cursor get the same events."""
        assert self.rest(self.at(FIRST)) == whole
        places = [parse("after", self.session, at or "") for _, at, _ in whole]
        assert places == sorted(set(places))
        for number, after in enumerate(places, 1):
            assert self.rest(self.at(after)) == whole[number:]


def heard(chance: random.Random) -> bytes:
    return (tone if chance.random() < 0.6 else silence)(chance.choice((0.5, 1, 2.5)))


@pytest.mark.parametrize("seed", range(6))
async def test_events_after_any_cursor_are_same(house: House, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that resumes on any node derives the same events from the rows, even in the middle of a window."""
    monkeypatch.setattr(socket_events, "LOOK_BACK", 3)
    monkeypatch.setattr(socket_events, "STEP", 4)
    chance = random.Random(seed)
    session = await opened(house)
    for number in range(30):
        for _ in range(chance.choice((0, 0, 1, 2, 9))):
            await house.sessions.submit(session, SourceNoted("n", "source.silent", 1))
        await house.sessions.submit(session, Chunk("c", number, heard(chance), captured=number))
        await turn()
    await house.sessions.submit(session, SourceNoted("n", "source.lost", 1))
    await house.sessions.submit(session, Sealed("s"))
    await analysed(house, session)
    readings = Readings(house, session)
    whole = readings.rest(readings.at(FIRST))
    sounds = {"window", "sound.started", "sound.ended", "session"}
    assert {kind for kind, _, _ in whole} == {*sounds, "source.silent", "source.lost"}
    readings.hold(whole)


@pytest.mark.parametrize("seed", range(6))
async def test_changed_rules_do_not_alter_past_events(house: House, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules change while the session runs and is read: later readers derive the events reported at the time."""
    monkeypatch.setattr(socket_events, "LOOK_BACK", 3)
    chance = random.Random(seed)
    session = await opened(house)
    readings = Readings(house, session)
    live, told = readings.at(FIRST), []
    for number in range(40):
        body: dict[str, object] = {}
        if chance.random() < 0.6:
            of = chance.randint(1, 4)
            body["sound_rule"] = {"windows": chance.randint(1, of), "of": of, "margin": chance.choice((0, 1, 4))}
        if chance.random() < 0.4:
            body["sound_rules"] = chance.choice(({}, {"Speech": {"margin": 6}}, {"Siren": {"windows": 2, "of": 2}}))
        assert await patch(house, session, body) == (204, "")
        await house.sessions.submit(session, Chunk("c", number, heard(chance)))
        await turn()
        told += readings.rest(live)
    await house.sessions.submit(session, Sealed("s"))
    await analysed(house, session)
    told += readings.rest(live)
    assert len(house.sessions.sessions[session].opened.tuned) > 20
    readings.hold(told)


async def test_invalid_rule_changes_are_rejected(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await opened(house)
    none: list[object] = [{"windows": 3, "of": 2}, {"of": 0}, []]
    for wrong in none:
        status, error = await patch(house, session, {"sound_rule": wrong})
        assert (status, "sound_rule" in error) == (400, True)
    status, error = await patch(house, session, {"sound_rules": {"Cow": {}}})
    assert (status, "Cow" in error) == (400, True)
    assert not house.sessions.sessions[session].opened.tuned
    monkeypatch.setattr(commands, "MOST_TUNED", 1)
    assert await patch(house, session, {"sound_rule": {}}) == (204, "")
    status, error = await patch(house, session, {"sound_rule": {}})
    assert (status, "changed 64 times" in error) == (400, True)
    monkeypatch.undo()
    assert await patch(house, session, {"sound_rule": {"margin": 3}, "make_readonly": True}) == (204, "")
    known = house.sessions.sessions[session]
    assert (known.opened.tuned[-1].rule.margin_ms, known.head.state) == (3000, "readonly")
    await analysed(house, session)
    status, error = await patch(house, session, {"sound_rule": {}})
    assert (status, "ended" in error) == (400, True)


async def test_event_stream_and_socket_agree(house: House) -> None:
    session = await opened(house)
    await house.sessions.submit(session, Chunk("c", 0, tone(1) + silence(3) + tone(1)))
    await house.sessions.submit(session, Sealed("s"))
    await analysed(house, session)
    query = "?events=window,sound.started,sound.ended,session&after=start"
    async with place(house) as here, here.line(path_of(session, query + "&mode=listen")) as line:
        told = [one for one in await line.rest() if "cursor" in one and one["type"] not in ("hello", "end")]
    path = f"/audio_sessions/{session}/live"
    stream = await Exchange(house, path + query).end()
    *streamed, last = sse.events(stream.body.decode().split("\n"))
    assert streamed == [(one["type"], one["cursor"], one) for one in told]
    assert last[0] == "ended"
    half = told[len(told) // 2]["cursor"]
    rest = await Exchange(house, path + query, last_event_id=half).end()
    assert rest.body == stream.body[stream.body.index(half.encode() + b"\nda") :].split(b"\n\n", 1)[1]
    windows = [one for one in told if one["type"] == "window"]
    plain = await Exchange(house, path, last_event_id=windows[3]["cursor"]).end()
    assert b"id: 4\n" in plain.body
    assert b"id: 3\n" not in plain.body
    wrong = await Exchange(house, path + "?events=all").end()
    assert wrong.status == 400


async def test_session_inherits_project_rules(house: House) -> None:
    rule, siren = SoundRule(2, 3, 1.5), SoundRule(margin=9.0)
    chosen = Choices(sound_rule=rule, sound_rules={"Siren": siren, "Speech": SoundRule(3, 3)})
    house.directory.keys[KEY] = Principal("project", "organization", choices=chosen)

    async def made(**fields: object) -> Choices:
        query = urlencode({name: json.dumps(value) for name, value in fields.items()})
        async with place(house) as here, here.line(f"{MAKING}&{query}", x_api_key=KEY) as line:
            return house.sessions.sessions[(await line.next())["session_id"]].opened.hearing.choices

    assert await made() == chosen
    own = await made(sound_rule={"margin": 0}, sound_rules={"Speech": {}})
    assert own == Choices(sound_rule=SoundRule(margin=0.0), sound_rules={"Siren": siren, "Speech": SoundRule()})


async def test_session_uses_its_own_rules(house: House) -> None:
    rules = {
        "sound_rule": '{"windows":2,"of":4,"margin":0}',
        "sound_rules": '{"Speech":{"windows":1,"of":1,"margin":9}}',
    }
    path = f"{MAKING}&{urlencode(rules)}&events=sound.started,sound.ended"
    async with place(house) as here:
        async with here.greeted(path, x_api_key=KEY) as line:
            await line.socket.send(tone(1) + silence(3) + tone(1.5))
            await line.socket.send(END)
            told = [one for one in await line.rest() if one["type"].startswith("sound.")]
        for wrong in ('{"windows":3,"of":2}', '{"of":0}', '{"margin":-1}', "[]"):
            async with here.line(f"{MAKING}&{urlencode({'sound_rule': wrong})}", x_api_key=KEY) as line:
                assert "sound_rule" in (await refused(line, 4400, 400))["error"]
        async with here.line(f"{MAKING}&{urlencode({'sound_rules': json.dumps({'Cow': {}})})}", x_api_key=KEY) as line:
            assert "Cow" in (await refused(line, 4400, 400))["error"]
    assert [(one["type"], one["name"], one.get("end_time")) for one in told if one["name"] == "Speech"] == [
        ("sound.started", "Speech", None),
        ("sound.ended", "Speech", 5),
    ]
    assert {one["name"] for one in told} > {"Speech"}
    assert "Dog_bark" not in {one["name"] for one in told}, "one window of four reports it"


async def test_event_stream_says_why_session_failed(house: House) -> None:
    session = await opened(house, content_type="audio/wav")
    await house.sessions.submit(session, Chunk("c", 0, b"no WAV"))
    await until(lambda: house.sessions.sessions[session].head.error)
    query = "?events=window&after=start"
    async with place(house) as here, here.line(path_of(session, query)) as line:
        told = (await line.next_of("session"))["cursor"]
    stream = await Exchange(house, f"/audio_sessions/{session}/live{query}").end()
    assert stream.body.startswith(b"event: session\nid: %s\n" % told.encode())


def closes(house: House, session: str, way_out: str) -> SessionCommand:
    """Return the command after which a session has no further events."""
    commands: dict[str, SessionCommand] = {
        "sealed": Sealed("s"),
        "failed": Chunk("c", 1, b"no WAV"),
        "deleted": Deleted("d"),
        "expired": Expired("e", house.sessions.sessions[session].head.command, 0),
    }
    return commands[way_out]


async def told_by_socket(here: Place, session: str) -> AsyncGenerator[list[dict[str, Any]], None]:
    async with here.greeted(path_of(session, f"?after=start&events={MIRRORED}")) as line:
        told = []
        with suppress(ConnectionClosed):
            while True:
                told.append(await line.next())
                yield told
        yield told


async def told_by_stream(here: Place, path: str, last: set[str]) -> AsyncGenerator[list[dict[str, Any]], None]:
    """Yield the events of a stream so far, each time one came, until the last one."""
    told: list[dict[str, Any]] = []
    address = here.url.replace("ws", "http") + path
    async with httpx2.AsyncClient() as client, client.stream("GET", address, headers={"X-Api-Key": KEY}) as answer:
        kind = ""
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            kind = value if name == "event" else kind
            if name == "data":
                told.append({**json.loads(value), "type": kind})
                yield told
                if kind in last:
                    return


@pytest.mark.parametrize("way_out", ["sealed", "failed", "deleted", "expired"])
@pytest.mark.parametrize("delivery", ["socket", "session", "project"])
async def test_what_started_has_ended_on_every_way_out(house: House, delivery: str, way_out: str) -> None:
    """Clients mirror what is on, and whether a session is open."""
    session = await opened(house, content_type="audio/wav" if way_out == "failed" else RAW)
    last = {"ended", "deleted"}
    async with place(house) as here:
        deliveries = {
            "socket": lambda: told_by_socket(here, session),
            "session": lambda: told_by_stream(
                here, f"/audio_sessions/{session}/live?after=start&events={MIRRORED}", last
            ),
            "project": lambda: told_by_stream(here, "/api/v1/live", last),
        }
        async with aclosing(deliveries[delivery]()) as pieces:
            first = wav(tone(3)) if way_out == "failed" else tone(3)
            sent = asyncio.ensure_future(house.sessions.submit(session, Chunk("c", 0, first)))
            is_out = False
            async for told in pieces:
                if not is_out and any(one["type"] == "sound.started" for one in told):
                    is_out = True
                    assert (await house.sessions.submit(session, closes(house, session, way_out))).status in (200, 204)
            await sent
    started, ended = (
        sorted((one["name"], one["start_time"]) for one in told if one["type"] == kind)
        for kind in ("sound.started", "sound.ended")
    )
    assert started == ended != []
    if delivery != "project":
        state = "deleted" if way_out in ("deleted", "expired") else "readonly"
        assert [one["state"] for one in told if one["type"] == "session"] == [state]
        cursors = [parse("after", session, one["cursor"]) for one in told if one["type"].startswith("sound.")]
        assert cursors == sorted(set(cursors))
