"""What `earshot doctor` finds without starting a service, and whose process answers at an address."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from infra.cli import build
from infra.cli import doctor as module
from infra.db.database import Database
from infra.errors import WrongSetting
from infra.service import data_directory
from infra.service.advertised import check_address, wait_for_standbys
from infra.service.doctor import Check, examine
from infra.settings import Settings
from tests.ports import free_port
from tests.unit.app.conftest import behind_a_server

pytestmark = pytest.mark.slow


def settings(data: Path, **fields: Any) -> Settings:
    return Settings(data=data, bundled_engines=False, **fields)


def examined(of: Settings, served: bool = False) -> list[Check]:
    async def found() -> list[Check]:
        return [one async for one in examine(of, served)]

    return asyncio.run(found())


def about(found: list[Check], name: str) -> list[tuple[str, str]]:
    return [(one.state, one.text) for one in found if one.about == name]


def test_new_directory_is_good(tmp_path: Path) -> None:
    found = examined(settings(tmp_path / "data"))
    assert {one.state for one in found} == {"good"}
    assert [one.about for one in found] == ["settings", "memory", "data", "disks", "database", "log", "model"]
    assert not (tmp_path / "data").exists()


def test_database_of_another_version_and_broken_model_are_bad(tmp_path: Path) -> None:
    async def age() -> None:
        database = Database(f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}")
        await database.migrate()
        async with database.writing() as connection:
            await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        await database.close()

    asyncio.run(age())
    found = examined(settings(tmp_path, model="nothing", speech_url=f"http://127.0.0.1:{free_port()}"))
    ((state, text),) = about(found, "database")
    assert state == "bad"
    assert text.startswith("EARSHOT_DATABASE_URL: the database is at revision 9999, this version reads")
    ((state, text),) = about(found, "model")
    assert (state, text) == ("bad", "EARSHOT_MODEL: there is no model nothing")
    ((state, text),) = about(found, "engines")
    assert state == "bad"
    assert text.startswith("EARSHOT_SPEECH_URL: the speech engine at http://127.0.0.1:")
    assert about(found, "disks")
    served = examined(settings(tmp_path), served=True)
    assert about(served, "disks") == about(served, "engines") == []


def test_directory_in_use_and_nearly_full_disk_are_told(tmp_path: Path) -> None:
    held = data_directory.lock(settings(tmp_path))
    try:
        found = examined(settings(tmp_path, upload_free_bytes=2**60))
    finally:
        held.release()
    assert about(found, "data") == [("good", f"{tmp_path}: process {os.getpid()} serves from it")]
    ((state, text),) = about(found, "disks")
    assert state == "bad"
    assert "uploads are refused" in text


def test_brokers_that_do_not_answer_are_bad(tmp_path: Path) -> None:
    port = free_port()
    found = examined(settings(tmp_path, broker=f"kafka://127.0.0.1:{port}", port=free_port()))
    ((state, text),) = about(found, "log")
    assert state == "bad"
    assert text.startswith(f"EARSHOT_BROKER: Kafka at 127.0.0.1:{port}: Connect")
    ((state, text),) = about(found, "address")
    assert state == "good"
    assert text.startswith("nothing answers at http://127.0.0.1:")


@contextmanager
def answering(process: str | None) -> Iterator[str]:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [] if process is None else [(b"earshot-process", process.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    with behind_a_server(answer) as url:
        yield url


@pytest.mark.parametrize("process", ["theirs", None], ids=["another node", "no node"])
def test_address_of_another_process_is_refused(tmp_path: Path, process: str | None) -> None:
    with answering(process) as url:
        with pytest.raises(WrongSetting, match=f"EARSHOT_ADVERTISE: {url} reaches another process"):
            asyncio.run(check_address(url, "ours"))
        broker = f"kafka://127.0.0.1:{free_port()}"
        found = examined(settings(tmp_path, broker=broker, port=free_port(), advertise=url))
        assert about(found, "address") == [("bad", f"EARSHOT_ADVERTISE: {url} reaches another process")]


def test_node_that_stops_waits_for_the_stand_bys_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.service.advertised.LOOK_SECONDS", 0.01)
    said = [b"behind", b"behind", b"ready"]

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"earshot-standbys", said.pop(0))] if said else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    with behind_a_server(answer) as url:
        asyncio.run(wait_for_standbys([f"http://127.0.0.1:{free_port()}", url]))
        assert not said
        asyncio.run(wait_for_standbys([url]))


def test_own_address_is_accepted_and_one_that_nobody_reaches_is_logged() -> None:
    with answering("ours") as url, capture_logs() as logs:
        asyncio.run(check_address(url, "ours"))
        assert logs == []
        asyncio.run(check_address(f"http://127.0.0.1:{free_port()}", "ours"))
    assert [line["event"] for line in logs] == ["advertise.unreachable"]


def test_command_has_status_1_if_something_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    done = CliRunner().invoke(build(), ["doctor"])
    assert (done.exit_code, done.stdout.splitlines()[0].split()) == (0, ["state", "about", "finding"])
    monkeypatch.setenv("EARSHOT_MODEL", "nothing")
    assert CliRunner().invoke(build(), ["doctor", "--json"]).exit_code == 1


async def test_running_service_that_does_not_answer_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", "an operator's key of many letters")
    of = settings(tmp_path, admin_key="an operator's key of many letters", port=free_port())
    assert await module._running(of) is None
    held = data_directory.lock(of)
    try:
        monkeypatch.setenv("EARSHOT_PORT", str(of.port))
        (found,) = await module._running(of) or []
    finally:
        held.release()
    assert (found.state, found.about) == ("bad", "service")
    assert found.text.startswith(f"no answer from http://127.0.0.1:{of.port}")
