"""Partitions that stopped, and the operator's decisions on them, in the control plane's database."""

from collections.abc import Sequence

from sqlalchemy import delete, insert, select, update

from infra.db.database import Store
from infra.db.schema import stopped_partitions as stops
from topics.errors import NotFound
from topics.ports.stops import Decision, Stop


class SqlStops(Store):
    """Implements the port `topics.ports.stops.Stops`, and the operator's side of it."""

    async def note(self, stop: Stop) -> Decision | None:
        """Note a stop, and return what the operator decided on it; a decision to resume is returned once."""
        known = await self._known(stop.partition)
        if known is None or (known.topic, known.offset) != (stop.topic, stop.offset):
            row = {name: getattr(stop, name) for name in ("partition", "topic", "offset", "cause", "at")}
            async with self._database.writing() as connection:
                await connection.execute(delete(stops).where(stops.c.partition == stop.partition))
                await connection.execute(insert(stops).values(row))
            return None
        if known.decision is Decision.RESUME:
            await self._decide(stop.partition, None)
        return known.decision

    async def clear(self, partition: int) -> None:
        async with self._database.writing() as connection:
            await connection.execute(delete(stops).where(stops.c.partition == partition))

    async def all(self) -> Sequence[Stop]:
        """Return all stopped partitions by number."""
        async with self._database.reading() as connection:
            rows = await connection.execute(select(stops).order_by(stops.c.partition))
            return [
                Stop(number, topic, offset, cause, at, None if decision is None else Decision(decision))
                for number, topic, offset, cause, at, decision in rows
            ]

    async def decide(self, partition: int, decision: Decision) -> None:
        """Tell the partition's node what to do; raise NotFound if the partition has not stopped."""
        if not await self._decide(partition, decision):
            raise NotFound(f"partition {partition} has not stopped")

    async def _decide(self, partition: int, decision: Decision | None) -> int:
        async with self._database.writing() as connection:
            changed = update(stops).where(stops.c.partition == partition).values(decision=decision)
            return (await connection.execute(changed)).rowcount

    async def _known(self, partition: int) -> Stop | None:
        return next((stop for stop in await self.all() if stop.partition == partition), None)
