"""What every test of the driver needs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from unittest import mock

import pytest
from faust.tables.manager import TableManager


@pytest.fixture(scope="package", autouse=True)
def no_settling() -> Iterator[None]:
    """Faust waits a second at every start for subscriptions of a cluster to settle; there is none here."""

    async def at_once(service: object, seconds: float) -> None:
        await asyncio.sleep(0)

    with mock.patch.object(TableManager, "sleep", at_once):
        yield
