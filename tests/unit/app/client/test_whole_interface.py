"""The client at the service's edge: streams, lists, recordings in every form, and one error type per fault."""

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

import earshot_client as sdk
from app.own_sounds import operations
from earshot_client import AsyncClient, Client
from earshot_client._media import Frames
from tests.contract.api import RAW, tone, wav
from tests.cutter import Cutter
from tests.unit.app.conftest import KEY, ORG_KEY, House
from tests.unit.app.double import GRAPH, MODEL, Session
from tests.unit.app.jobs.conftest import SOUND, sounds
from tests.waiting import until, wait_for
from topics.choices import Choices, SoundRule
from topics.errors import AudioError, Conflict, NotFound
from topics.hearing import Hearing
from topics.hearing import OwnSound as Learnt
from topics.jobs.options import Options, Service
from topics.keys import new_id
from topics.ports.ledger import MeteredService
from topics.ports.lists import Coverage
from topics.ports.own_sounds import LearntFigures, Mark, TaughtSound
from topics.ports.projects import DailyUsage, ProjectAccount
from topics.ports.projects import ProjectKey as AccountKey
from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead

pytestmark = pytest.mark.slow

PCM = sdk.SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le")
HALF_SECOND = tone(0.5)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, KEY, org_key=ORG_KEY, sleep=lambda seconds: None) as client:
        yield client


@pytest.fixture
def streamer(cutter: Cutter) -> Iterator[Client]:
    with Client(cutter.url, KEY) as client:
        yield client


# --- the project ------------------------------------------------------------------------------------------------------


def account(seconds: int | None) -> ProjectAccount:
    key = AccountKey("esp_…stuv", 1_767_323_045_678, None)
    return ProjectAccount("p", "Barn", "Farm", 1_767_323_045_678, key, None, 1500, Choices(seconds))


def test_project_audio_retention(either: Client, house: House) -> None:
    house.projects.choose = chosen = mock.AsyncMock()
    house.projects.account = mock.AsyncMock(
        side_effect=lambda project: account(chosen.call_args[0][1]["keep_audio_seconds"] if chosen.called else None)
    )
    kept = either.change_project(keep_audio_seconds=3600)
    assert (kept.keep_audio_seconds, kept.longest_keep_audio_seconds) == (3600, 86_400)
    chosen.assert_awaited_once_with("project", {"keep_audio_seconds": 3600})
    assert either.project().used_seconds == 1.5
    with pytest.raises(sdk.RequestRefused, match="0 to 86400"):
        either.change_project(keep_audio_seconds=10**6)
    assert either.change_project(keep_audio_seconds=None).keep_audio_seconds is None


def test_project_settings_and_usage(either: Client, house: House) -> None:
    rule, rules = SoundRule(2, 3, 1.5), {"Siren": SoundRule(margin=10)}
    shown = msgspec.structs.replace(account(None), choices=Choices(None, rule, rules, True))
    house.projects.choose = chosen = mock.AsyncMock()
    house.projects.account = mock.AsyncMock(return_value=shown)
    used = DailyUsage("2026-11-01", MeteredService.SESSION, 2, 1500)
    house.projects.daily_usage = usage = mock.AsyncMock(return_value=[used])
    assert either.change_project(keep_embeddings=True).keep_embeddings
    of_all, of_siren = sdk.SoundRule(2, 3, 1.5), sdk.SoundRule(margin=10)
    project = either.change_project(sound_rule=of_all, sound_rules={"Siren": of_siren})
    assert (project.sound_rule, project.sound_rules) == (of_all, {"Siren": of_siren})
    either.change_project(sound_rule=None, sound_rules={})
    assert [call.args[1] for call in chosen.await_args_list] == [
        {"keep_embeddings": True},
        {"sound_rule": rule, "sound_rules": rules},
        {"sound_rule": None, "sound_rules": {}},
    ]
    (row,) = either.project_usage(date(2026, 11, 1), date(2026, 11, 2))
    assert (row.day, row.service, row.jobs, row.seconds) == (date(2026, 11, 1), "audio_session", 2, 1.5)
    usage.assert_awaited_once_with("project", 1_793_491_200_000, 1_793_664_000_000)
    assert either.project_usage() == (row,)


# --- own sounds -----------------------------------------------------------------------------------------------------

MARKED = Mark("m1", True, "j1", 12_000, 15_500, True, GRAPH)
KETTLE = TaughtSound("Kettle", 1_793_491_200_000, False, None, {}, True, [MARKED])


@pytest.fixture
def analysed(house: House) -> str:
    """A session whose windows, a second long every half second, resemble a kettle twice."""
    name = new_id()
    hearing = Hearing(choices=Choices(keep_embeddings=True))
    opened = Opened("o", "stream", RAW, "project", 1000, 500, model=MODEL, hearing=hearing)
    house.sessions.sessions[name] = Session(opened, SessionHead("stream", None, 1, 0, windows=6), 1)
    house.sessions.kept = [b"\1", b"\2", b"\1", b"\1", b"\1", b"\2"]
    house.own_sounds.learnt.return_value = Learnt("Kettle", GRAPH, b"", b"")
    house.own_sounds.scores = lambda sound, embeddings, recording: bytes(126 + look for look in embeddings)
    return name


def test_own_sound_is_taught(either: Client, house: House, analysed: str) -> None:
    store = house.own_sounds
    figures = LearntFigures(10, 0.9, 0.3, ("Siren",))
    learnt = msgspec.structs.replace(KETTLE, learnt_at=1_793_491_200_000, figures={"streams": figures}, on=True)
    store.sounds.return_value, store.mark.return_value = [KETTLE], KETTLE
    store.learn.return_value = store.switch.return_value = learnt
    (sound,) = either.own_sounds()
    assert sound == either.mark_sound("Kettle", 0.5, 1.5, session_id=analysed, right=False)
    assert (sound.name, sound.on, sound.learnt_at, sound.figures) == ("Kettle", False, None, {})
    assert sound.marks == (sdk.SoundMark("m1", "j1", None, 12, 15.5, True),)
    project, name, mark = store.mark.await_args.args
    assert (project, name, mark.source, mark.start_ms, mark.end_ms) == ("project", "Kettle", analysed, 500, 1500)
    assert not mark.right
    sound = either.learn_sound("Kettle")
    assert (sound.learnt_at, sound.figures) == (
        sound.created_at,
        {"streams": sdk.SoundFigures(10, 0.9, 0.3, ("Siren",))},
    )
    assert either.switch_sound("Kettle", True).on
    store.switch.assert_awaited_once_with("project", "Kettle", True)
    either.delete_mark("Kettle", "m1")
    store.unmark.assert_awaited_once_with("project", "Kettle", "m1")
    either.delete_sound("Kettle")
    store.remove.assert_awaited_once_with("project", "Kettle")


def test_search_for_own_sound_reads_all_pages(either: Client, analysed: str) -> None:
    whole = list(either.find_sound("Kettle", session_id=analysed))
    assert [(one.start, one.end) for one in whole] == [(0.5, 1.5), (2.5, 3.5)]
    with mock.patch.object(operations, "MOST_FOUND", 1):
        assert list(either.find_sound("Kettle", session_id=analysed)) == whole
    assert list(either.find_sound("Kettle", 2, session_id=analysed)) == whole[1:]


def test_own_sound_rejections_raise_typed_errors(either: Client, house: House, analysed: str) -> None:
    store = house.own_sounds
    store.remove.side_effect = store.unmark.side_effect = NotFound("no such sound")
    store.switch.side_effect = Conflict("has to be learnt first")
    with pytest.raises(sdk.SoundNotFound, match="no such sound"):
        either.delete_sound("a ?b")
    store.remove.assert_awaited_once_with("project", "a ?b")
    either.delete_mark("Kettle", "m1")
    with pytest.raises(sdk.SoundConflict, match="learnt first"):
        either.switch_sound("Kettle", True)
    with pytest.raises(sdk.SoundNotFound, match="Not Found"):
        either.mark_sound("Kettle", 0, 1, job_id=new_id())
    for job, session in ((None, None), ("j", "s")):
        with pytest.raises(ValueError, match="either job_id or session_id"):
            either.mark_sound("Kettle", 0, 1, job_id=job, session_id=session)


# --- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "frame"),
    [
        ("audio/x-raw; rate=16000; format=s24be; channels=3", 9),
        ("Audio/X-RAW;channels=2;format=F32;rate=1", 8),
        ('audio/x-raw; rate=16000; format="s24"; channels="2"', 6),
        ("audio/x-raw; rate=16000; format=u8", 1),
        ("audio/x-raw; format=s16; channels=0", 1),
        ("audio/wav", 1),
    ],
)
def test_frames_are_cut_by_content_type(content_type: str, frame: int) -> None:
    frames = Frames(content_type)
    first, second = (len(b"".join(frames.feed(b"x" * 50, 100))) for _ in range(2))
    assert (first, first + second) == (50 // frame * frame, 100 // frame * frame)


def test_error_of_block_iterator_follows_events(streamer: Client, cutter: Cutter, house: House) -> None:
    def blocks() -> Iterator[bytes]:
        yield from [HALF_SECOND] * 2
        raise OSError("the microphone was unplugged")

    async def read() -> None:
        async with AsyncClient(cutter.url, KEY) as other:
            found.extend([event.start async for event in _noted(other.stream(blocks()))])

    async def _noted(events: AsyncIterator[sdk.Event]) -> AsyncIterator[sdk.Event]:
        async for event in events:
            found.append(event.start)
            yield event

    found: list[float] = []
    with pytest.raises(OSError, match="unplugged"):
        found.extend(event.start for event in streamer.stream(blocks()))
    with pytest.raises(OSError, match="unplugged"):
        asyncio.run(read())
    assert found == [0, 0], "each had its event before"
    assert {session.head.state for session in house.sessions.sessions.values()} == {"readonly"}


def test_closing_iterator_stops_stream(streamer: Client, cutter: Cutter, house: House) -> None:
    sent: list[int] = []

    def blocks(closed: threading.Event) -> Iterator[bytes]:
        for number in range(500):
            if number == 10:
                closed.wait()
            sent.append(1)
            yield HALF_SECOND

    async def scene(closed: threading.Event) -> None:
        async with AsyncClient(cutter.url, KEY) as other:
            events = other.stream(blocks(closed))
            await anext(events)
            await events.aclose()  # type: ignore[attr-defined]
            closed.set()
            await until(lambda: all(one.head.state == "readonly" for one in house.sessions.sessions.values()))

    closed = threading.Event()
    events = streamer.stream(blocks(closed))
    next(events)
    events.close()  # type: ignore[attr-defined]
    closed.set()
    asyncio.run(scene(threading.Event()))
    assert len(house.sessions.sessions) == 2
    wait_for(lambda: "earshot-audio" not in {thread.name for thread in threading.enumerate()})
    assert len(sent) < 900


# --- recordings -----------------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[Path], Any]] = {
    "str": str,
    "Path": Path,
    "bytes": lambda path: path.read_bytes(),
    "file": lambda path: path.open("rb"),
    "memory": lambda path: io.BytesIO(path.read_bytes()),
}


@pytest.mark.parametrize("form", FORMS)
def test_recording_is_accepted_in_every_form(
    either: Client, house: House, tmp_path: Path, request: pytest.FixtureRequest, form: str
) -> None:
    path = tmp_path / "street.wav"
    path.write_bytes(wav(tone(2.0)))
    audio = FORMS[form](path)
    request.addfinalizer(getattr(audio, "close", lambda: None))
    assert [event.start for event in either.detect(audio)] == [0, 0.5, 1]
    job = either.analyze_file(audio)
    assert b"".join(house.jobs.jobs[job.id].parts.values()) == path.read_bytes()
    assert either.add_voice("Kim", audio).name == "Kim"
    assert either.recognize(audio)
    names = {session.opened.file_name for session in house.sessions.sessions.values()}
    assert names == ({"audio"} if form in ("bytes", "memory") else {"street.wav"})


@pytest.mark.parametrize("audio", [5, None, ["a.wav"], io.StringIO("text")])
def test_invalid_recording_types_raise_immediately(client: Client, audio: Any) -> None:
    for call in (
        lambda: list(client.detect(audio)),
        lambda: client.analyze_file(audio),
        lambda: client.recognize(audio),
    ):
        with pytest.raises(TypeError, match="a path, bytes or a file open for reading bytes"):
            call()
    with pytest.raises(FileNotFoundError):
        client.analyze_file("nowhere.wav")


def test_unreadable_audio_raises_same_error_everywhere(client: Client, house: House) -> None:
    """A file that is no recording raises the same error in every call."""
    house.prober.failure = house.speakers.failure = AudioError("not a supported audio file")
    for call in (
        lambda: list(client.detect(b"not audio at all")),
        lambda: client.analyze_file(b"not audio at all"),
        lambda: client.analyze(b"not audio at all", 16_000),
        lambda: client.add_voice("Kim", b"not audio at all"),
        lambda: client.recognize(b"not audio at all"),
    ):
        with pytest.raises(sdk.UnknownFormat, match=r"not a (WAV, MP3|supported audio file)"):
            call()
    with pytest.raises(sdk.SessionFailed, match="declared audio/wav"):
        list(client.detect(b"RIFF\0\0\0\0WAVE, and nothing else"))


def test_recording_is_sent_as_json(client: Client, house: House) -> None:
    job = client.analyze(
        HALF_SECOND, 16_000, sdk.JobOptions(sound_event_detection=True), content_type="audio/x-raw; format=s16le"
    )
    accepted = house.jobs.jobs[job.id].accepted
    assert accepted is not None
    assert accepted.options == SOUND
    assert b"".join(house.jobs.jobs[job.id].parts.values()) == HALF_SECOND


# --- options --------------------------------------------------------------------------------------------------------


def test_job_options_match_service() -> None:
    """Each option of the service exists in the client, with the same default."""
    ours = {field.name: field.default for field in msgspec.structs.fields(sdk.JobOptions)}
    service = {field.name: field.default for field in msgspec.structs.fields(Options)}
    assert service.items() <= ours.items()
    assert msgspec.json.encode(sdk.JobOptions()) == b"{}"


def test_session_options_reach_service(client: Client, house: House) -> None:
    options = sdk.SessionOptions(
        "file",
        "audio/wav",
        total_size=9,
        file_name="a.wav",
        metadata={"room": "hall"},
        window_hop="1s",
        file_length=2.5,
        model="double",
    )
    opened = house.sessions.sessions[client.create_session(options).id].opened
    assert (opened.metadata, opened.hop_ms, opened.file_length) == ({"room": "hall"}, 1000, 2.5)
    with pytest.raises(sdk.RequestRefused, match="'other' is not available"):
        client.create_session(msgspec.structs.replace(options, model="other"))


@pytest.mark.parametrize("metadata", [{"room": 5}, {5: "room"}, {"room": None}, {"room": ["hall"]}])
def test_non_text_metadata_raises(metadata: Any) -> None:
    with pytest.raises(TypeError, match=r"metadata: .* both must be text"):
        sdk.SessionOptions("file", "audio/wav", metadata=metadata)


# --- other session calls --------------------------------------------------------------------------------------------


def test_results_and_predictions(either: Client) -> None:
    session = either.create_session(sdk.SessionOptions("file", "audio/wav", total_size=len(wav(tone(2.0)))))
    assert either.session_results(session.id).state == "pending"
    either.put_chunk(session.id, 0, wav(tone(2.0)))
    results = either.session_results(session.id, offset=1, limit=1)
    assert (results.state, [event.start for event in results.events], results.has_more) == ("done", [0.5], True)
    stream = either.create_session(PCM)
    window = tone(stream.window_size)
    assert either.predict(stream.id, window).next_sequence == 1
    assert either.predict(stream.id, window, 1).event.sounds
    with pytest.raises(sdk.WrongSequence):
        either.predict(stream.id, window, 1)
    assert either.predict(stream.id, window).next_sequence == 3


def test_session_sound_rules_are_changed(either: Client, house: House) -> None:
    session = either.create_session(PCM)
    either.change_sound_rules(session.id, sdk.SoundRule(margin=3), {"Siren": sdk.SoundRule(2, 2)})
    either.change_sound_rules(session.id, rules={})
    first, second = house.sessions.sessions[session.id].opened.tuned
    assert (first.rule, first.by_name) == (SoundRule(margin=3), {"Siren": SoundRule(2, 2)})
    assert (second.rule, second.by_name) == (first.rule, {})


def test_job_scores_and_link(either: Client, house: House) -> None:
    job = house.jobs.create(SOUND, keep_audio_ms=60_000)
    with pytest.raises(sdk.JobConflict):
        either.job_scores(job)
    house.jobs.perform(job, Service.SOUND, sounds("Dog_bark", ""))
    scores = either.job_scores(job)
    assert (len(scores.scores), scores.window_seconds) == (2 * len(scores.tags), 2)
    reported = [tag for tag, byte in zip(scores.tags, scores.scores, strict=False) if byte >= scores.reported_from]
    assert reported == ["Dog_bark"]
    assert either.job_audio_link(job).url.startswith(f"/api/v1/jobs/{job}/audio?token=")


def test_client_reports_readiness(client: Client, house: House) -> None:
    assert client.is_ready()
    house.health.waiting = "its partitions"
    assert not client.is_ready()


# --- live streams -----------------------------------------------------------------------------------------------------


def heard(client: Client) -> str:
    session = client.create_session(PCM).id
    for number in range(6):
        client.put_chunk(session, number, HALF_SECOND)
    client.seal_session(session)
    return session


def test_session_stream_runs_to_end(either: Client) -> None:
    session = heard(either)
    events = list(either.live(session, 0))
    assert [event.kind for event in events] == ["session", *["window"] * 5, "ended"]
    windows = [event.window for event in events if event.kind == "window"]
    assert [(one.window, one.start, one.session_id) for one in windows] == [
        (number, number / 2, session) for number in range(5)
    ]
    assert windows[0].level is not None
    assert windows[0].level.rms == -20.5
    assert windows[2].strip is not None
    assert (windows[2].strip.start, windows[2].strip.columns) == (1.5, bytes([2] * 640))
    assert [one.name for one in windows[0].top[:2]] == [one.name for one in windows[0].sounds]
    assert events[0].session_id == session
    assert [event.window.window for event in either.live(session, -2) if event.kind == "window"] == [3, 4]


def test_project_stream_includes_new_session_and_jobs(client: Client, url: str, house: House) -> None:
    events = client.project_live()
    session = client.create_session(PCM).id
    assert next(events).session_id == session
    client.put_chunk(session, 0, tone(1.0))
    assert next(event.window.window for event in events if event.kind == "window") == 0
    with pytest.raises(sdk.DeadlineExceeded):
        list(client.project_live(timeout=0.5))
    with Client(url, "nobody") as stranger, pytest.raises(sdk.WrongKey):
        next(stranger.project_live())
    job = house.jobs.create(SOUND)
    event = next(event for event in client.project_live() if event.kind == "job")
    assert (event.job_id, event.session_id) == (job, None)
    assert (event.job.status, event.job.services["sound_event_detection"].status) == ("accepted", "pending")


def test_activity_of_day(either: Client) -> None:
    session = heard(either)
    day = either.list_sessions().entries[0].created_at
    assert day is not None
    one, whole = either.session_activity(session, day[:10]), either.project_activity(day[:10])
    assert (one.sessions, sum(one.analysed), one.tags) == (1, 2.5, whole.tags)
    assert either.project_activity("2020-01-01", 60).sessions == 0
    for ask in (lambda: next(either.live("0123456789abcdefghijABCD")), lambda: either.session_activity("another")):
        with pytest.raises(sdk.SessionNotFound):
            ask()


# --- lists ----------------------------------------------------------------------------------------------------------


def test_lists_are_paged_and_filtered(either: Client, house: House) -> None:
    sessions = [either.create_session(PCM).id for _ in range(3)][::-1]
    jobs = [house.jobs.create(SOUND) for _ in range(3)][::-1]
    house.jobs.perform(jobs[0], Service.SOUND, audio_ms=1000)
    assert [entry.id for entry in either.sessions()] == sessions
    assert [entry.id for entry in either.jobs()] == jobs
    assert [entry.id for entry in either.jobs(state="completed")] == jobs[:1]
    page = either.list_jobs(count=2)
    assert ([entry.seconds for entry in page.entries], page.missing) == ([1, None], None)
    assert [entry.id for entry in either.list_jobs(page.token).entries] == jobs[2:]
    moment = datetime.fromisoformat(page.entries[1].created_at)
    assert [entry.id for entry in either.jobs(since=moment)] == jobs[:2]
    assert [entry.id for entry in either.jobs(until=moment.astimezone(UTC).replace(tzinfo=None))] == jobs[2:]
    assert list(either.sessions(since="2999-01-01")) == []
    assert either.list_sessions(count=1).entries[0].kind == "stream"
    with pytest.raises(sdk.RequestRefused, match="state:"):
        either.list_sessions(state="open")
    first = either.list_sessions(count=2)
    assert [entry.id for entry in either.list_sessions(first.token).entries] == sessions[2:]


def test_incomplete_list_raises_at_end(client: Client, house: House) -> None:
    job = house.jobs.create(SOUND)
    house.jobs.covered = Coverage(frozenset({0}), 4, frozenset())
    entries = client.jobs()
    assert next(entries).id == job
    with pytest.raises(sdk.IncompleteList, match="3 of 4 partitions"):
        next(entries)
    missing = client.list_jobs().missing
    assert missing is not None
    assert (missing.partitions, missing.of) == (3, 4)


def test_oversized_chunk_error_names_setting(client: Client, house: House) -> None:
    session = client.create_session(PCM)
    with pytest.raises(sdk.RequestRefused, match="EARSHOT_CHUNK_LIMIT") as refusal:
        client.put_chunk(session.id, 0, bytes(1024 * 1024 + 2))
    assert refusal.value.status == 413
