"""Rows of usage as JSON, CSV and text, for the operator's interface and for commands."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from topics import keys
from topics.ports.administration import UsageTotal
from topics.ports.ledger import Charge, MeteredService

T = TypeVar("T")

#: Rows of a page, which is rendered without a pause.
PAGE: Final = 500
MONTH: Final = r"^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])$"
#: A spreadsheet runs a cell that begins with one of these as a formula (OWASP, "CSV Injection").
_FORMULA: Final = tuple("=+-@＝＋－＠")


class TotalRow(msgspec.Struct, frozen=True):
    """The use of one service by one project in one month."""

    month: str
    #: Name, or the id if the project was deleted.
    project: str
    service: MeteredService
    jobs: int
    #: Exact to the millisecond.
    audio_seconds: float
    #: Names, separated by a comma and a space.
    models: str
    project_id: str
    organization_id: str

    @staticmethod
    def of(total: UsageTotal) -> TotalRow:
        name, seconds, models = total.name or total.project, total.audio_ms / 1000, ", ".join(total.models)
        return TotalRow(
            total.month, name, total.service, total.jobs, seconds, models, total.project, total.organization
        )

    def total(self) -> UsageTotal:
        """Return the total of this row. A model whose name contains a comma becomes two models."""
        name = None if self.project == self.project_id else self.project
        models = tuple(self.models.split(", "))
        return UsageTotal(
            self.month,
            self.project_id,
            name,
            self.organization_id,
            self.service,
            self.jobs,
            round(self.audio_seconds * 1000),
            models,
        )


class LineRow(msgspec.Struct, frozen=True):
    """A line of the ledger."""

    #: ISO 8601 in UTC, with milliseconds.
    accepted_at: str
    #: The visible part of the id of a job or session; the full id would give access.
    job: str
    service: MeteredService
    #: Exact to the millisecond.
    audio_seconds: float
    model: str
    project_id: str
    organization_id: str
    #: Number of the session's step: 0, 1, ...
    step: int = 0

    @staticmethod
    def of(charge: Charge) -> LineRow:
        at = datetime.fromtimestamp(charge.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        seconds = charge.audio_ms / 1000
        who = (charge.project, charge.organization)
        return LineRow(at, keys.shown(charge.job), charge.service, seconds, charge.model, *who, charge.step)

    def charge(self) -> Charge:
        """Return the charge of this row; its job id is cut."""
        at_ms = round(datetime.fromisoformat(self.accepted_at).timestamp() * 1000)
        audio_ms = round(self.audio_seconds * 1000)
        who = (self.project_id, self.organization_id)
        return Charge(self.job, self.service, *who, audio_ms, self.model, at_ms, self.step)


def texts(row: msgspec.Struct) -> list[str]:
    """Return the values of a row as one-line texts, seconds to the millisecond."""
    return [_text(value) for value in msgspec.structs.astuple(row)]


async def as_csv(
    kind: type[msgspec.Struct], pages: AsyncIterable[Sequence[msgspec.Struct]]
) -> AsyncGenerator[str, None]:
    """Yield a header line, even if there are no rows, then the lines of each page.

    Values that a spreadsheet would read as formulas get a leading apostrophe, because clients and engines choose names.
    """
    yield _csv([kind.__struct_fields__])
    async for page in pages:
        yield _csv(["'" + text if text.lstrip().startswith(_FORMULA) else text for text in texts(row)] for row in page)


async def paged(rows: Sequence[T]) -> AsyncGenerator[Sequence[T], None]:
    """Yield the rows page by page, so that other tasks run in between."""
    for start in range(0, len(rows), PAGE):
        yield rows[start : start + PAGE]
        await asyncio.sleep(0)


def is_month(text: str) -> bool:
    """Return True for a calendar month such as 2026-11."""
    return re.fullmatch(MONTH, text) is not None


def _csv(rows: Iterable[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _text(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)
