"""The two nodes that most of these tests use."""

from collections.abc import Iterator

import pytest

from tests.cluster.nodes import Pair, Settings, service_nodes, start_again


@pytest.fixture(scope="module")
def settings() -> tuple[Settings, Settings]:
    """Settings of each node, for files to replace."""
    return {}, {}


@pytest.fixture(scope="module")
def pair(settings: tuple[Settings, Settings], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with service_nodes(tmp_path_factory.mktemp("nodes"), *settings) as (one, two):
        yield one, two


@pytest.fixture
def nodes(pair: Pair) -> Pair:
    """Both nodes of one Kafka and one control-plane database, restarted if a test killed them."""
    start_again(pair)
    return pair
