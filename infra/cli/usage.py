"""`earshot usage`: what was analysed for whom, and whether the ledger and the log agree on it."""

from __future__ import annotations

import asyncio
import csv
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.output import Row, show_all
from topics.errors import EarshotError, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from infra.db.ledger import Total
    from infra.db.recount import Recount
    from infra.settings import Settings
    from streams.driver.history import History
    from topics.ports import Charge


class Format(StrEnum):
    """Forms of the output."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(usage)


def usage(
    project: Annotated[str | None, typer.Option(help="Id or name; the id also of a deleted one.")] = None,
    organization: Annotated[str | None, typer.Option(help="Id or name; the id also of a deleted one.")] = None,
    month: Annotated[str | None, typer.Option(help="Calendar month (UTC), such as 2026-11; by default all.")] = None,
    form: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.TABLE,
    lines: Annotated[bool, typer.Option("--lines", help="A line for each service of each job.")] = False,
    recount: Annotated[
        bool,
        typer.Option(
            "--recount",
            help="Count again from the log and print where the ledger differs; exit status 1 if it does anywhere. "
            "The embedded log is read while the service is stopped, Kafka at any time.",
        ),
    ] = False,
) -> None:
    """Print jobs and seconds of audio per month, project and service; each service of a job counts by itself."""
    if recount:
        if project or organization or month or lines:
            raise typer.BadParameter(
                "--recount takes everything: give no --project, --organization, --month or --lines"
            )
        _recount(form)
        return
    if month is not None:
        _check(month)
    rows = asyncio.run(_read(project, organization, month, lines))
    _print(rows, form)


def _check(month: str) -> None:
    try:
        if datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC).strftime("%Y-%m") == month:
            return
    except ValueError:
        pass
    raise typer.BadParameter(f"{month!r} is no month such as 2026-11", param_hint="--month")


async def _read(project: str | None, organization: str | None, month: str | None, lines: bool) -> list[Row]:
    from infra.db.accounts import Accounts
    from infra.db.database import Database
    from infra.db.ledger import SqlLedger
    from infra.settings import load

    database = Database(load().database)
    try:
        await database.migrate()
        accounts, ledger = Accounts(database), SqlLedger(database)
        of_project = await _id(accounts.find_project, project)
        of_organization = await _id(accounts.find_organization, organization)
        wanted = (of_project, of_organization, month)
        if lines:
            return [_line(charge) for charge in await ledger.lines(*wanted)]
        return [_total(total) for total in await ledger.totals(*wanted)]
    finally:
        await database.close()


async def _id(find: Callable[[str], Awaitable[str]], reference: str | None) -> str | None:
    """Return the id that is meant; one that is not known may be of something deleted, whose usage stays."""
    from topics.keys import is_id

    if reference is None:
        return None
    try:
        return await find(reference)
    except NotFound:
        if is_id(reference):
            return reference
        raise


def _total(total: Total) -> Row:
    return {
        "month": total.month,
        "project": total.name or total.project,
        "service": total.service.value,
        "jobs": total.jobs,
        "audio_seconds": _seconds(total.audio_ms),
        "models": ", ".join(total.models),
        "project_id": total.project,
        "organization_id": total.organization,
    }


def _line(charge: Charge) -> Row:
    return {
        "accepted_at": datetime.fromtimestamp(charge.at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "job": charge.job,
        "service": charge.service.value,
        "audio_seconds": _seconds(charge.audio_ms),
        "model": charge.model,
        "project_id": charge.project,
        "organization_id": charge.organization,
    }


def _seconds(ms: int) -> str:
    """Return seconds to the millisecond, exactly."""
    return f"{ms // 1000}.{ms % 1000:03d}"


def _print(rows: Sequence[Row], form: Format) -> None:
    match form:
        case Format.CSV:
            if rows:
                writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        case Format.JSON:
            show_all([{**row, **_number(row)} for row in rows], True)
        case Format.TABLE:
            show_all(rows, False)


def _number(row: Row) -> Row:
    """Return the seconds as a number of JSON, whose shortest form is exact to the millisecond."""
    seconds = row.get("audio_seconds")
    return {} if seconds is None else {"audio_seconds": float(seconds)}


def _recount(form: Format) -> None:
    from infra.settings import load

    found = asyncio.run(_compare(load()))
    _print(
        [{"job": one.job, "service": one.service.value, "difference": one.difference} for one in found.differences],
        form,
    )
    said = [f"{_counted(found.jobs, 'job')} compared, {_counted(len(found.differences), 'difference')}"]
    if found.by_rows:
        said.append(f"{found.by_rows} of them by their rows, as the log no longer has all of their records")
    if found.gone:
        said.append(f"{found.gone} not compared, as the log has neither")
    typer.echo(f"earshot: {'; '.join(said)}", err=True)
    if found.differences:
        raise typer.Exit(1)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


async def _compare(settings: Settings) -> Recount:
    from infra.db.database import Database
    from infra.db.ledger import SqlLedger
    from infra.db.recount import recount

    history = await _history(settings)
    database = Database(settings.database)
    try:
        await database.migrate()
        return await recount(history, SqlLedger(database))
    finally:
        await database.close()
        await history.close()


async def _history(settings: Settings) -> History:
    from infra.urls import Embedded
    from streams.driver.history import EmbeddedHistory, KafkaHistory
    from streams.embedded.errors import LogLocked
    from topics import catalog

    broker = settings.log
    if not isinstance(broker, Embedded):
        limit = catalog.record_limit(settings.chunk_limit)
        return await KafkaHistory.open(broker.hosts, settings.partition_count, limit)
    try:
        return EmbeddedHistory(broker.directory)
    except LogLocked as error:
        raise EarshotError(f"{error}: stop the service before its log is read") from None
