"""`earshot accept-log`: accept a log on Kafka that is not the one of before."""

from __future__ import annotations

import asyncio

import typer

from infra.cli.administration import opened_database
from infra.cli.output import Yes, confirm


def accept_log(yes: Yes = False) -> None:
    """Accept the topics on Kafka as the next start finds them: made again, with fewer records or more partitions.

    Stop all nodes first. What the log does not have any more is lost.
    """
    asyncio.run(_accept(yes))


async def _accept(yes: bool) -> None:
    from infra.db.seen_log import SqlLogMemory
    from infra.settings import load
    from topics.ports.seen_log import SeenLog

    async with opened_database(load()) as database:
        memory = SqlLogMemory(database)
        seen = await memory.seen()
        if seen is None or not seen.topics:
            typer.echo("No log on Kafka was seen since the last time: the next start accepts what it finds.")
            return
        for number, reason in sorted(seen.lost.items()):
            typer.echo(f"partition {number}: {reason}")
        confirm(yes, "Accept the topics as the next start finds them, with what is lost? All nodes must be stopped.")
        # The number of partitions stays: it says where sessions and jobs are.
        await memory.update(lambda before: SeenLog(seen.partitions))
        typer.echo("Start all nodes.")
