"""What a node finds unfinished at its start is tried with a record on the log; what comes afterwards is not."""

from __future__ import annotations

from pathlib import Path

from streams.node.node import Node
from tests.unit.streams.node.nodes import Home, log_of, send, tp, view
from tests.unit.streams.sessions.studio import STREAM, sound
from tests.waiting import until
from topics import record_codec
from topics.catalog import COMMANDS, RESULTS
from topics.keys import new_id
from topics.sessions.records import Begun, Chunk, SessionResult


def results(node: Node, session: str) -> list[SessionResult]:
    records = log_of(node).read(tp(RESULTS, session), 0, 1000, 1 << 30)
    return [record_codec.decode_result(record.value) for record in records]


async def test_what_is_unfinished_at_the_start_is_begun_with_a_record(tmp_path: Path) -> None:
    home, session = Home(tmp_path), new_id()

    async def analysed(node: Node, chunks: int) -> None:
        await until(lambda: view(node, session).head.cursor.chunks == chunks)

    async with home.serving() as node:
        await send(node, session, STREAM, Chunk("c0", 0, sound(1)))
        await analysed(node, 1)
        windows = view(node, session).head.windows
        assert not any(isinstance(result, Begun) for result in results(node, session))
    # As of a process that died before it did the work.
    await home.append(tp(COMMANDS, session), session.encode(), record_codec.encode(Chunk("c1", 1, sound(1, 2))))
    async with home.serving() as node:
        await analysed(node, 2)
        await send(node, session, Chunk("c2", 2, sound(1, 3)))
        await analysed(node, 3)
        begun = [result for result in results(node, session) if isinstance(result, Begun)]
        assert begun == [Begun(windows, 1, 1)]
        assert view(node, session).head.begun == 0
