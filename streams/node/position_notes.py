"""Notes of how far the topics of a partition are folded: the next owner folds from there."""

import asyncio
from collections.abc import Callable

from streams.log import Ack
from streams.node.backend import LogBackend
from streams.node.owner import PartitionOwner
from streams.tables.partition_rows import encode_positions
from topics.catalog import CHANGELOG
from topics.errors import Unavailable
from topics.keys import POSITIONS


async def note_positions(owner: PartitionOwner, backend: LogBackend, may_append: Callable[[], bool]) -> None:
    """Log how far an owner's topics are folded, after the resulting rows, so that positions never lead them."""
    if (positions := owner.positions()) == owner.noted:
        return
    owner.noted, folded_ms = positions, backend.log_ms()
    for _ in owner.rows.log_heads():
        await asyncio.sleep(0)
        if owner.closed or not may_append():
            owner.noted = None
            return
    gaps, logged = owner.unread_gaps, owner.rows.unlogged
    appended = backend.writer.append(
        CHANGELOG,
        owner.number,
        POSITIONS,
        encode_positions(positions, folded_ms),
        bounded=False,
        epoch=owner.rows.epoch,
    )

    def note(done: asyncio.Future[Ack]) -> None:
        if done.cancelled() or done.exception() is not None or owner.closed:
            return
        if owner.unread_gaps or owner.unread_gaps is not gaps:
            return
        if owner.sessions.behind:
            owner.noted = None  # Rows of the changelog are not in the table yet.
            return
        try:
            owner.rows.note(positions, done.result().offset + 1, folded_ms, logged)
            owner.aside.forget(positions)
        except Unavailable:
            owner.noted = None  # The next round logs them again.
        else:
            owner.durable = positions

    appended.add_done_callback(note)
