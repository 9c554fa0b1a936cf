"""`earshot usage`: print usage by project, or check the ledger against the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from app.admin.usage_rows import LineRow, TotalRow, as_csv, is_month, paged, texts
from infra.cli.administration import AdminUrl, administer, opened_database
from topics.errors import EarshotError
from topics.ports.administration import Administration, UsageFilter
from topics.ports.ledger import MeteredService

if TYPE_CHECKING:
    from infra.db.recount import Recount
    from infra.settings import Settings
    from streams.log import LogHistory


class Format(StrEnum):
    """Forms of the output."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def usage(
    project: Annotated[str | None, typer.Option(help="Id or name; also the id of a deleted one.")] = None,
    organization: Annotated[
        str | None, typer.Option("--org", "--organization", help="Id or name; also the id of a deleted one.")
    ] = None,
    service: Annotated[MeteredService | None, typer.Option(help="A service; by default all.")] = None,
    month: Annotated[str | None, typer.Option(help="Calendar month (UTC), such as 2026-11; by default all.")] = None,
    form: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.TABLE,
    lines: Annotated[bool, typer.Option("--lines", help="Single lines of the ledger.")] = False,
    recount: Annotated[
        bool,
        typer.Option(
            "--recount",
            help="Recount from the log and print where the ledger differs; exit status 1 if it does. Reads the log "
            "and the ledger here, never a remote service. Stop a service with the embedded log first; on Kafka it may "
            "run.",
        ),
    ] = False,
    url: AdminUrl = None,
) -> None:
    """Print jobs, sessions and seconds of audio per month, project and service; each service counts separately."""
    if recount:
        if project or organization or service or month or lines:
            raise typer.BadParameter(
                "--recount takes everything: give no --project, --org, --service, --month or --lines"
            )
        if url:
            raise typer.BadParameter("--recount reads the log and the ledger here: give no --url or EARSHOT_ADMIN_URL")
        _recount(form)
        return
    if month is not None and not is_month(month):
        raise typer.BadParameter(f"{month!r} is not a month such as 2026-11", param_hint="--month")
    period = UsageFilter(organization, project, service, month)

    async def print_usage(accounts: Administration) -> None:
        if lines:
            async with aclosing(accounts.lines(period)) as pages:
                await _print(LineRow, ([LineRow.of(charge) for charge in page] async for page in pages), form)
        else:
            totals = [TotalRow.of(total) for total in await accounts.totals(period)]
            await _print(TotalRow, paged(totals), form)

    administer(url, print_usage)


async def _print(kind: type[msgspec.Struct], pages: AsyncIterable[Sequence[msgspec.Struct]], form: Format) -> None:
    """Print rows as they arrive; the columns of a table grow with their content."""
    match form:
        case Format.CSV:
            async with aclosing(as_csv(kind, pages)) as texts_of_pages:
                async for text in texts_of_pages:
                    typer.echo(text, nl=False)
        case Format.JSON:
            before = "["
            async for page in pages:
                if page:
                    # The text of one whole list, piece by piece.
                    text = json.dumps(list(map(msgspec.structs.asdict, page)), indent=2, ensure_ascii=False)
                    typer.echo(before + text[1:-2], nl=False)
                    before = ","
            typer.echo("[]" if before == "[" else "\n]")
        case Format.TABLE:
            from infra.cli.tables import print_columns

            widths: list[int] = []
            async for page in pages:
                names = [] if widths else [kind.__struct_fields__]
                cells = [[text or "-" for text in texts(row)] for row in page]
                widths = print_columns([*names, *cells], widths)
            if not widths and kind in (LineRow, TotalRow):
                typer.echo("earshot: there is no such usage", err=True)


def _recount(form: Format) -> None:
    from infra.db.recount import Difference
    from infra.settings import load

    outcome = asyncio.run(_compare(load()))
    asyncio.run(_print(Difference, paged(outcome.differences), form))
    compared = [_count(outcome.jobs, "job")] + ([_count(outcome.sessions, "session")] if outcome.sessions else [])
    parts = [f"{' and '.join(compared)} compared, {_count(len(outcome.differences), 'difference')}"]
    if outcome.by_rows:
        parts.append(
            f"{outcome.by_rows} of them compared by their rows, because the log no longer has all their records"
        )
    if outcome.gone:
        parts.append(f"{outcome.gone} not compared: neither records nor rows remain")
    typer.echo(f"earshot: {'; '.join(parts)}", err=True)
    if outcome.differences:
        raise typer.Exit(1)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


async def _compare(settings: Settings) -> Recount:
    from infra.db.ledger import SqlLedger
    from infra.db.recount import recount

    async with opened_database(settings) as database, _history(settings) as history:
        return await recount(history, SqlLedger(database))


@asynccontextmanager
async def _history(settings: Settings) -> AsyncIterator[LogHistory]:
    from infra.urls import Embedded
    from streams.embedded.embedded_history import embedded_history
    from streams.embedded.errors import LogLocked
    from streams.kafka.kafka_history import kafka_history
    from topics import catalog

    broker = settings.log
    try:
        async with (
            embedded_history(broker.directory)
            if isinstance(broker, Embedded)
            else kafka_history(
                settings.connection(broker.hosts), settings.partition_count, catalog.record_limit(settings.chunk_bytes)
            )
        ) as history:
            yield history
    except LogLocked as error:
        raise EarshotError(f"{error}: --recount reads its log, so stop the service first") from None
