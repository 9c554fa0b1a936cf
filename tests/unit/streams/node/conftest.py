"""A home, and a node that serves there."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.node.node import Node
from tests.unit.streams.node.nodes import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def node(home: Home, loop: asyncio.Runner) -> Iterator[Node]:
    """Yield a node that does not fail."""
    serving = home.serving()
    yield loop.run(serving.__aenter__())
    loop.run(serving.__aexit__(None, None, None))
    assert home.failures == 0
