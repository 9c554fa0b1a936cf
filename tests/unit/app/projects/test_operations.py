"""A project by its own key, over a real database in a file, without a socket."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from infra.service import key_uses
from tests.unit.app.real_house import RealHouse, opened
from tests.waiting import until
from topics.choices import Choices, SoundRule
from topics.errors import DirectoryDown, ServiceError, Unavailable
from topics.ports.ledger import Charge, MeteredService

NOON = 1_793_534_400_000  # 2026-11-01T12:00:00Z
DAY = 86_400_000


@pytest.fixture
def house(loop: asyncio.Runner, tmp_path: Path) -> Iterator[RealHouse]:
    made = opened(
        tmp_path, lambda: NOON / 1000, key_cache_seconds=0, job_audio_seconds=60, audio_retention_seconds=3600
    )
    house = loop.run(made.__aenter__())
    loop.run(house.accounts.create_organization("Zoo"))
    _, house.key = loop.run(house.accounts.create_project("apes"))
    yield house
    loop.run(made.__aexit__(None, None, None))


async def test_project_reads_its_own_settings(house: RealHouse) -> None:
    ((apes,), zoo) = await house.accounts.projects(), (await house.accounts.organizations())[0]
    await house.accounts.plan("apes", 600)
    charge = Charge("j1", MeteredService.SOUND, apes.id, zoo.id, 61_500, "yamnet@1", NOON)
    live = msgspec.structs.replace(charge, job="s1", service=MeteredService.SESSION)
    await house.ledger.record([charge, live, msgspec.structs.replace(charge, job="j2", at_ms=NOON - DAY)])
    answer = await house.get("/project")
    assert answer.json() == {
        "id": apes.id,
        "name": "apes",
        "organization": "Zoo",
        "created_at": "2026-11-01T12:00:00Z",
        "key": {"shown_as": f"esp_…{house.key[-4:]}", "created_at": "2026-11-01T12:00:00Z", "last_used_at": None},
        "free_seconds": 600,
        "used_seconds": 61.5,
        "keep_audio_seconds": None,
        "default_keep_audio_seconds": 60,
        "longest_keep_audio_seconds": 3600,
        "sound_rule": None,
        "sound_rules": {},
        "keep_embeddings": False,
    }
    assert house.key not in answer.text


async def test_project_sets_audio_retention(house: RealHouse) -> None:
    keyed = {"X-Api-Key": house.key}
    with mock.patch.object(house.keyring, "_seconds", 600.0):
        assert (await house.keyring.holder(house.key)).choices.keep_audio_seconds is None
        for seconds in (3600, 0, None):
            answer = await house.http.patch("/api/v1/project", json={"keep_audio_seconds": seconds}, headers=keyed)
            assert answer.json()["keep_audio_seconds"] == seconds
            assert (await house.keyring.holder(house.key)).choices.keep_audio_seconds == seconds, "the next job knows"
    assert (await house.get("/project")).json()["keep_audio_seconds"] is None


async def test_project_sets_sound_rules(house: RealHouse) -> None:
    async def change(**body: object) -> Choices:
        answer = await house.http.patch("/api/v1/project", json=body, headers={"X-Api-Key": house.key})
        assert answer.status_code == 200
        assert answer.json()["keep_audio_seconds"] is None
        shown = (await house.get("/project")).json()
        assert {name: shown[name] for name in body} == body
        return (await house.keyring.holder(house.key)).choices

    strict, siren = {"windows": 2, "of": 3, "margin": 1.5}, {"windows": 1, "of": 1, "margin": 10}
    with mock.patch.object(house.keyring, "_seconds", 600.0):
        assert (await house.keyring.holder(house.key)).choices == Choices()
        assert await change(sound_rule=strict) == Choices(sound_rule=SoundRule(2, 3, 1.5))
        by_name = {"Siren": SoundRule(margin=10)}
        assert await change(sound_rules={"Siren": siren}) == Choices(None, SoundRule(2, 3, 1.5), by_name)
        assert await change(sound_rule=None) == Choices(sound_rules=by_name)
        assert await change(sound_rules={}) == Choices()


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"keep_audio_seconds": 3601}, "0 to 3600"),
        ({"keep_audio_seconds": -1}, "0 to 3600"),
        ({"keep_audio_seconds": 1.5}, "keep_audio_seconds"),
        ({"keep_audio_seconds": 10**30}, "keep_audio_seconds"),
        ({"keep_audio_seconds": True}, "keep_audio_seconds"),
        ({"keep_audio_seconds": None, "free_seconds": 10}, "free_seconds"),
        ({}, "keep_audio_seconds"),
        ({"sound_rule": {"windows": 2}}, "sound_rule: windows is 2, must be at most of (1)"),
        ({"sound_rules": {"Siren": {"windows": 2}}}, "sound_rules: windows is 2, must be at most of (1)"),
        ({"sound_rule": {"of": 61}}, "sound_rule"),
        ({"sound_rules": {"Cow": {}}}, "Cow"),
        ({"sound_rules": None}, "sound_rules"),
        ({"sound_rule": {}, "keep_audio_seconds": 3601}, "0 to 3600"),
        (None, "body"),
    ],
)
async def test_invalid_settings_are_rejected(body: object, fault: str, house: RealHouse) -> None:
    answer = await house.http.patch("/api/v1/project", json=body, headers={"X-Api-Key": house.key})
    assert answer.status_code == 400
    assert fault in answer.json()["error"]
    shown = (await house.get("/project")).json()
    assert (shown["keep_audio_seconds"], shown["sound_rule"], shown["sound_rules"]) == (None, None, {})


async def test_usage_by_day(house: RealHouse) -> None:
    (apes,) = await house.accounts.projects()
    one = Charge("j1", MeteredService.SOUND, apes.id, apes.organization, 1500, "m", NOON)
    more = (
        one,
        msgspec.structs.replace(one, job="j2"),
        msgspec.structs.replace(one, job="j3", at_ms=NOON - NOON % DAY - 1),
        msgspec.structs.replace(one, job="s1", service=MeteredService.SESSION, step=0),
        msgspec.structs.replace(one, job="s1", service=MeteredService.SESSION, step=1),
        msgspec.structs.replace(one, job="j4", project="another"),
        msgspec.structs.replace(one, job="j5", at_ms=NOON + 3 * DAY),
    )
    await house.ledger.record(more)
    answer = (await house.get("/project/usage?since=2026-10-31&until=2026-11-02")).json()
    assert answer == {
        "since": "2026-10-31",
        "until": "2026-11-02",
        "rows": [
            {"day": "2026-10-31", "service": "sound_event_detection", "jobs": 1, "seconds": 1.5},
            {"day": "2026-11-01", "service": "audio_session", "jobs": 1, "seconds": 3.0},
            {"day": "2026-11-01", "service": "sound_event_detection", "jobs": 2, "seconds": 3.0},
        ],
    }
    assert len((await house.get("/project/usage?until=2026-11-04")).json()["rows"]) == 4
    assert (await house.get("/project/usage")).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "since=yesterday",
        "until=2026-13-01",
        "until=20261101",
        "until=2026-W44-7",
        "since=2026-11-02&until=2026-11-01",
        "since=2020-01-01",
        "until=%00",
    ],
)
async def test_invalid_days_are_rejected(query: str, house: RealHouse) -> None:
    answer = await house.get(f"/project/usage?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(query[:5])


async def test_first_and_last_possible_days(house: RealHouse) -> None:
    assert (await house.get("/project/usage?until=0001-01-05")).json()["since"] == "0001-01-01"
    assert (await house.get("/project/usage?since=9999-12-31&until=9999-12-31")).json()["rows"] == []


async def test_deleted_project_with_cached_key_is_rejected(house: RealHouse) -> None:
    """Its key may still be cached."""
    principal = await house.keyring.holder(house.key)
    await house.accounts.delete_project("apes")
    with mock.patch.object(house.keyring, "holder", mock.AsyncMock(return_value=principal)):
        assert (await house.get("/project")).status_code == 404
        assert (await house.http.post("/api/v1/project/key", headers={"X-Api-Key": house.key})).status_code == 401


@pytest.mark.parametrize("failure", [DirectoryDown("away"), Unavailable("full")])
async def test_last_use_of_key_is_recorded(house: RealHouse, failure: ServiceError) -> None:
    noted: list[int] = []
    gate, written = asyncio.Semaphore(0), asyncio.Event()

    async def note(digests: Sequence[bytes]) -> None:
        noted.append(len(digests))
        await gate.acquire()
        if len(noted) == 1:
            raise failure
        await house.sql_projects.note_used(digests)
        written.set()

    with mock.patch.object(key_uses, "NOTE_SECONDS", 0.001):
        noting = asyncio.create_task(key_uses.keep_noting([house.keyring], note))
        for _ in range(2):
            assert (await house.get("/project")).json()["key"]["last_used_at"] is None
            await until(lambda: noted)
        gate.release()
        await until(lambda: len(noted) == 2)
        assert (await house.get("/project", "wrong" * 8)).status_code == 401
        gate.release()
        await written.wait()
        await asyncio.sleep(0.02)
        assert noted == [1, 1]
        noting.cancel()
    assert (await house.get("/project")).json()["key"]["last_used_at"] == "2026-11-01T12:00:00Z"
