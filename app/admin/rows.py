"""Rows of usage, the same for the operator's interface and for commands: as JSON, as CSV, and as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from topics.accounts import Total
from topics.jobs.options import Service
from topics.ports import Charge

#: A spreadsheet takes a cell that begins so for a formula, and runs it (OWASP, "CSV Injection").
_FORMULA: Final = tuple("=+-@＝＋－＠")


class TotalRow(msgspec.Struct, frozen=True):
    """What one project used of one service in one month."""

    month: str
    #: Its name, or the id once it was deleted.
    project: str
    service: Service
    jobs: int
    #: Exact to the millisecond.
    audio_seconds: float
    #: Names with a comma and a space between them.
    models: str
    project_id: str
    organization_id: str

    @staticmethod
    def of(total: Total) -> TotalRow:
        """Return the row of a total."""
        name, seconds, models = total.name or total.project, total.audio_ms / 1000, ", ".join(total.models)
        return TotalRow(
            total.month, name, total.service, total.jobs, seconds, models, total.project, total.organization
        )

    def total(self) -> Total:
        """Return what it was made of, but that the name of a model with a comma in it becomes two."""
        name = None if self.project == self.project_id else self.project
        models = tuple(self.models.split(", "))
        return Total(
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
    job: str
    service: Service
    #: Exact to the millisecond.
    audio_seconds: float
    model: str
    project_id: str
    organization_id: str

    @staticmethod
    def of(charge: Charge) -> LineRow:
        """Return the row of a charge."""
        at = datetime.fromtimestamp(charge.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        seconds = charge.audio_ms / 1000
        return LineRow(at, charge.job, charge.service, seconds, charge.model, charge.project, charge.organization)

    def charge(self) -> Charge:
        """Return what it was made of."""
        at_ms = round(datetime.fromisoformat(self.accepted_at).timestamp() * 1000)
        audio_ms = round(self.audio_seconds * 1000)
        return Charge(self.job, self.service, self.project_id, self.organization_id, audio_ms, self.model, at_ms)


def texts(row: msgspec.Struct) -> list[str]:
    """Return the values of a row as text of one line, seconds to the millisecond."""
    return [_text(value) for value in msgspec.structs.astuple(row)]


def csv_lines(kind: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> Iterator[str]:
    """Yield a line of names, also when there are no rows, and a line for each row of this kind.

    What a spreadsheet would take for a formula gets an apostrophe before it: clients and engines choose names.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(kind.__struct_fields__)
    yield buffer.getvalue()
    for row in rows:
        buffer.seek(0)
        buffer.truncate()
        writer.writerow("'" + text if text.lstrip().startswith(_FORMULA) else text for text in texts(row))
        yield buffer.getvalue()


def is_month(text: str) -> bool:
    """Return True for a calendar month such as 2026-11."""
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).strftime("%Y-%m") == text
    except ValueError:
        return False


def _text(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)
