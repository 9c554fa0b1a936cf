"""Dead letters: read whole, and put back for the owner of their partition."""

import pytest

from streams.node.dead_letters import DeadLetters
from streams.node.node import Node
from tests.unit.streams.node.nodes import in_partition, log_of, send, view
from tests.unit.streams.sessions.studio import STREAM, sound
from tests.waiting import until
from topics import record_codec
from topics.catalog import COMMANDS, COMMANDS_PARKED
from topics.errors import NotFound, NotOwned, Unavailable
from topics.records import Parked
from topics.sessions.records import Chunk

NUMBER = 1


async def park(node: Node, offset: int, key: bytes, value: bytes) -> None:
    parked = record_codec.encode(Parked(COMMANDS, NUMBER, offset, "it was unreadable", key, value))
    await log_of(node).append(COMMANDS_PARKED, NUMBER, key, parked)


async def test_record_that_is_put_back_is_folded_once(node: Node) -> None:
    letters, session = DeadLetters(node), in_partition(NUMBER)
    await send(node, session, STREAM)
    chunk = record_codec.encode(Chunk("c", 0, sound(1)))
    await log_of(node).append(COMMANDS_PARKED, NUMBER, b"k", b"\xc1 what another program left")
    await park(node, 7, session.encode(), chunk)
    letter = await letters.read(COMMANDS, NUMBER, 7)
    assert (letter.cause, letter.key, letter.value) == ("it was unreadable", session, chunk)
    first = await letters.put_back(COMMANDS, NUMBER, 7)
    await until(lambda: view(node, session).head.next == 1)
    assert await letters.put_back(COMMANDS, NUMBER, 7) == first + 1
    (verdict,) = await send(node, session, Chunk("d", 1, sound(1)))
    assert (verdict.status, verdict.next) == (200, 2)


async def test_record_that_still_cannot_be_read_is_set_aside_again(node: Node) -> None:
    letters = DeadLetters(node)
    await park(node, 7, b"k", b"\xc1 nothing")
    offset = await letters.put_back(COMMANDS, NUMBER, 7)
    await until(lambda: node.partitions.takeover.parked.total() == 1)
    again = await letters.read(COMMANDS, NUMBER, offset)
    assert (again.value, again.cause.split(":")[0]) == (b"\xc1 nothing", "RecordError")


@pytest.mark.parametrize("place", [(COMMANDS, NUMBER, 8), (COMMANDS, 99, 7), (COMMANDS_PARKED, NUMBER, 7), ("x", 1, 7)])
async def test_unknown_place_is_not_found(node: Node, place: tuple[str, int, int]) -> None:
    await park(node, 7, b"k", b"v")
    with pytest.raises(NotFound, match="there is no dead letter"):
        await DeadLetters(node).read(*place)


async def test_only_the_owner_puts_back(node: Node) -> None:
    await park(node, 7, b"k", b"v")
    owner = node.owners.here.pop(NUMBER)
    with pytest.raises(NotOwned):
        await DeadLetters(node).put_back(COMMANDS, NUMBER, 7)
    node.owners.here[NUMBER] = owner
    node.owners.may_append = lambda: False
    with pytest.raises(Unavailable, match="no contact"):
        await DeadLetters(node).put_back(COMMANDS, NUMBER, 7)
    node.owners.may_append = lambda: True
