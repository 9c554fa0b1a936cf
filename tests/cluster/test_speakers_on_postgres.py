"""Two services with one PostgreSQL database and one voice store share their speakers, and outlive its absence."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.api import Api
from tests.contract.speakers import Speakers, data, made, voice
from tests.postgres import postgres_database, stopped
from tests.process import ADMIN_KEY, ServiceProcess
from tests.recordings import ANNA
from tests.stub_engines import StubEngines

pytestmark = pytest.mark.slow


def test_speakers_are_shared_between_services(tmp_path: Path) -> None:
    """They share organizations, and each has its own log."""
    store = tmp_path / "store"
    store.mkdir()
    with ExitStack() as stack:
        database, engines = stack.enter_context(postgres_database()), stack.enter_context(StubEngines())
        shared = {"database_url": database, "voices_url": str(store), "keep_voice": "true", **engines.settings}
        services = [
            stack.enter_context(ServiceProcess(tmp_path / name, model="sed-mini", key_cache_seconds="0", **shared))
            for name in ("one", "two")
        ]
        key, before = made(services[0], "both").key, set(store.rglob("*"))
        one, two = (stack.enter_context(Speakers(service, key)) for service in services)
        data(one.add("Anna_Kim", voice(ANNA, 0.0, 3.0)))
        assert data(two.add("Anna_Kim", voice(ANNA, 3.0, 3.0)))["samples"] == 2
        assert one.entries() == two.entries()
        assert {turn["speaker_name"] for turn in two.turns(voice(ANNA, 7.0, 4.0))} == {"Anna_Kim"}
        kept = [path for path in {*store.rglob("*")} - before if path.is_file()]
        assert len(kept) == 2
        data(two.remove("Anna_Kim"))
        assert data(one.listed()) == []
        assert not any(path.exists() for path in kept)
        other = made(services[1], "later").key
        with Api(services[0]) as api:
            session = api.create()
            with stopped(database):
                assert api.http.get(f"/audio_sessions/{session}/status").status_code == 200
                assert api.create()
                for answer in (
                    one.http.get("/speakers", headers={"X-Org-Key": other}),
                    api.http.get("/admin/v1/organizations", headers={"Authorization": f"Bearer {ADMIN_KEY}"}),
                ):
                    assert answer.status_code == 503
                    assert answer.headers["content-type"] == "application/json"
                    assert answer.headers["retry-after"]
            assert data(one.http.get("/speakers", headers={"X-Org-Key": other})) == []
            assert made(services[0], "after it")
