"""The version that landed before and this one, side by side in both orders: they share the work, or one is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import models
from tests import versions
from tests.cluster.nodes import service_nodes, start
from tests.process import ServiceProcess
from tests.recovery.load import Client, Stream
from tests.recovery.truth import expected_events
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

SESSIONS = 6
CHUNKS = 4
#: What a node says that cannot join nodes of the other version, in its last lines.
REFUSALS = ("nodes of a version with other formats", "nodes of an older version", "this version reads")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        yield versions.make_earlier(tmp_path_factory.mktemp("earlier") / "tree")
    except versions.NoEarlier as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("founder", ["earlier", "this"])
async def test_versions_share_the_work_or_one_is_refused(founder: str, earlier: Path, tmp_path: Path) -> None:
    with service_nodes(tmp_path, {}, {}) as (one, two):
        trees = [earlier, None] if founder == "earlier" else [None, earlier]
        one.tree, two.tree = trees
        start(one)
        async with Client(one, two) as client:
            streams = [await client.open() for _ in range(SESSIONS)]
            await _put(client, streams)
            if versions.group_protocol(earlier) == versions.group_protocol(versions.ROOT):
                await _roll(client, streams, one, two)
            else:
                _is_refused(two)
                await _put(client, streams)
                two.tree = one.tree
            start(one, two)
            for stream in streams:
                await client.seal(stream)
                assert await client.events(stream.session) == expected_events(
                    stream.chunks, models.directory("sed_mini")
                )


async def _put(client: Client, streams: list[Stream]) -> None:
    for _ in range(CHUNKS):
        for seed, stream in enumerate(streams):
            # The next chunk goes to the other node.
            client.first += 1
            await client.put(stream, seed)


async def _roll(client: Client, streams: list[Stream], one: ServiceProcess, two: ServiceProcess) -> None:
    """Use both versions beside each other; give both nodes the version of the second; go back."""
    first, second = one.tree, two.tree
    start(two)
    await _put(client, streams)
    for node, tree in ((one, second), (two, first), (one, first)):
        assert node.stop() == 0, node.tail()
        node.tree = tree
        start(node)
        await _put(client, streams)


def _is_refused(node: ServiceProcess) -> None:
    """Check that a start ends with a line that says why."""
    node.start(wait=0)
    wait_for(lambda: not node.running, 120)
    assert any(refusal in node.tail() for refusal in REFUSALS), node.tail()
    assert node.stop() != 0
