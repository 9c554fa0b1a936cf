"""Two services with one PostgreSQL database and one voice store share their speakers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.speakers import Speakers, data, made, voice
from tests.postgres import postgres_database
from tests.process import ServiceProcess
from tests.recordings import ANNA
from tests.stub_engines import StubEngines

pytestmark = pytest.mark.slow

Pair = tuple[ServiceProcess, ServiceProcess]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres_database() as url:
        yield url


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, store: Path, database: str) -> Iterator[Pair]:
    """Two services that share organizations, each with its own log."""
    with StubEngines() as engines:
        shared = {"database_url": database, "voices_url": str(store), "keep_voice": "true"}
        own = {"model": "sed-mini", "key_cache_seconds": "0", **shared, **engines.settings}
        first, second = (ServiceProcess(tmp_path_factory.mktemp(name) / "data", **own) for name in ("one", "two"))
        with first, second:
            yield first, second


def test_speakers_are_shared_between_services(nodes: Pair, store: Path) -> None:
    key = made(nodes[0], "both").key
    before = set(store.rglob("*"))
    with Speakers(nodes[0], key) as one, Speakers(nodes[1], key) as two:
        data(one.add("Anna_Kim", voice(ANNA, 0.0, 3.0)))
        assert data(two.add("Anna_Kim", voice(ANNA, 3.0, 3.0)))["samples"] == 2
        assert one.entries() == two.entries()
        assert {turn["speaker_name"] for turn in two.turns(voice(ANNA, 7.0, 4.0))} == {"Anna_Kim"}
        kept = [path for path in {*store.rglob("*")} - before if path.is_file()]
        assert len(kept) == 2
        data(two.remove("Anna_Kim"))
        assert data(one.listed()) == []
        assert not any(path.exists() for path in kept)
