"""The session interface at both of its places and the job interface, over whatever `service` is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.api import Api, Service
from tests.contract.jobs import Jobs
from tests.stub_engines import StubEngines

HERE = Path(__file__).parent
LAST = "test_every_operation_and_status_was_met"
WHOLE = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Ask last what no test has met, and only where all of them run in this process."""
    items.sort(key=lambda item: item.name == LAST)
    seen = {item.path for item in items if item.path.parent == HERE}
    marked = config.option.markexpr not in ("", "not kafka")
    chosen = config.option.keyword or marked or any("::" in argument for argument in config.args)
    shared = "PYTEST_XDIST_WORKER" in os.environ
    config.stash[WHOLE] = seen == set(HERE.glob("test_*.py")) and not chosen and not shared


@pytest.fixture
def contract_is_whole(request: pytest.FixtureRequest) -> bool:
    """Whether every test of the contract tier runs in this process."""
    return request.config.stash[WHOLE]


@pytest.fixture
def api(service: Service) -> Iterator[Api]:
    """The interface at `/`."""
    driver = Api(service)
    yield driver
    driver.http.close()


@pytest.fixture
def sense(service: Service) -> Iterator[Api]:
    """The interface at its alias."""
    driver = Api(service, "/sense/api/v1")
    yield driver
    driver.http.close()


@pytest.fixture
def jobs(service: Service, engines: StubEngines) -> Iterator[Jobs]:
    """The job interface, with engines that are well."""
    engines.heal()
    driver = Jobs(service)
    yield driver
    driver.http.close()
    engines.heal()
