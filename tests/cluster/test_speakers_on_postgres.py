"""Two services with one PostgreSQL database and one voice store share their speakers."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from infra.urls import database_url
from tests.contract.api import tone, wav
from tests.contract.speakers import Speakers, data, made, refused, voice
from tests.postgres import postgres_database
from tests.process import ServiceProcess
from tests.recordings import ANNA, BERT
from tests.stub_engines import StubEngines
from tests.waiting import wait_for
from topics import apikeys
from topics.apikeys import KeyKind

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
        yield first.start(), second.start()
        for node in (first, second):
            assert node.stop() == 0, node.tail()


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


def test_speaker_limit_holds_across_services(nodes: Pair) -> None:
    audio, key = voice(BERT, 0.0, 2.0), made(nodes[0], "full").key
    with Speakers(nodes[0], key) as one, Speakers(nodes[1], key) as two, ThreadPoolExecutor(60) as pool:

        def added(number: int) -> Any:
            answer = (one, two)[number % 2].add(f"speaker_{number}", audio)
            # On a busy machine the last requests in the queue for a connection get "the database does not answer".
            busy = answer.status_code == 500 and answer.json()["error"] == "the database does not answer"
            return None if busy else answer

        answers = list(pool.map(lambda number: wait_for(lambda: added(number), 60), range(60)))
        told = Counter((answer.status_code, answer.json()["error"]) for answer in answers)
        assert told == {(200, ""): 50, (200, "speaker_max_count(50) exceeded"): 10}
        assert len(one.entries()) == len(two.entries()) == 50


@contextmanager
def away(database: str) -> Iterator[None]:
    """Close all connections to the database, and refuse new ones."""
    url = make_url(database_url(database))

    async def told(*statements: str) -> None:
        engine = create_async_engine(url.set(database="template1"), isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            for statement in statements:
                await connection.execute(text(statement), {"name": url.database})
        await engine.dispose()

    alter = f'ALTER DATABASE "{url.database}" ALLOW_CONNECTIONS'
    asyncio.run(told(f"{alter} false", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"))
    try:
        yield
    finally:
        asyncio.run(told(f"{alter} true"))


def test_known_keys_survive_database_outage(nodes: Pair, database: str) -> None:
    node, organization = nodes[0], made(nodes[0], "spared")
    session = {"type": "stream", "content_type": "audio/wav"}

    def created(key: str) -> httpx2.Response:
        return httpx2.post(f"{node.url}/audio_sessions/", json=session, headers={"X-Api-Key": key}, timeout=30)

    with Speakers(node, organization.key) as known, Speakers(node, apikeys.new(KeyKind.ORGANIZATION)) as unseen:
        assert created(node.key).status_code == 200
        assert data(known.listed()) == []
        with away(database):
            assert created(node.key).status_code == 200
            answer = created(apikeys.new(KeyKind.PROJECT))
            assert (answer.status_code, answer.json()["error"]) == (500, "API key verification failed")
            refused(unseen.listed(), 500, "organization key verification failed")
            refused(unseen.add("Anna", wav(tone(2.0))), 500, "organization key verification failed")
            # The key is valid. Clients see no details of the database's error.
            refused(known.listed(), 500, "the database does not answer")
            refused(known.remove("Anna"), 500, "the database does not answer")
        assert data(known.listed()) == []
        refused(unseen.listed(), 401, "organization not found")
