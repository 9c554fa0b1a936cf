"""The session interface at both of its places, over whatever `service` is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.api import Api, Service


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
