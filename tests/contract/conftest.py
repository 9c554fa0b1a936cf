"""The session interface at both of its paths and the job interface, on every `service`."""

from collections.abc import Iterator

import pytest

from tests.contract.api import Api, Service
from tests.contract.jobs import Jobs
from tests.stub_engines import StubEngines


@pytest.fixture
def api(service: Service) -> Iterator[Api]:
    with Api(service) as driver:
        yield driver


@pytest.fixture
def sense(service: Service) -> Iterator[Api]:
    with Api(service, "/sense/api/v1") as driver:
        yield driver


@pytest.fixture
def jobs(service: Service, engines: StubEngines) -> Iterator[Jobs]:
    """The job interface, with healthy engines."""
    engines.heal()
    with Jobs(service) as driver:
        yield driver
    engines.heal()
