"""The usage ledger: each service of a job once, exact to the millisecond, and kept when projects are deleted."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import IntegrityError

from infra.db import ledger as ledger_module
from infra.db.accounts import Accounts
from infra.db.database import Database
from infra.db.ledger import EVER, SqlLedger
from tests.unit.infra.conftest import SQLITE
from topics.ports.administration import UsageFilter, UsageTotal
from topics.ports.ledger import Charge, Ledger, MeteredService

NOVEMBER = 1_793_491_200_000  # 2026-11-01T00:00:00Z
CHARGE = Charge("j1", MeteredService.SOUND, "p1", "o1", 1234, "yamnet@1", NOVEMBER)


def charge(job: str, service: MeteredService = MeteredService.SOUND, **changes: object) -> Charge:
    return msgspec.structs.replace(CHARGE, job=job, service=service, **changes)


async def lines(ledger: SqlLedger, period: UsageFilter = EVER) -> list[Charge]:
    return [one async for page in ledger.lines(period) for one in page]


@pytest.fixture
def ledger(database: Database) -> SqlLedger:
    return SqlLedger(database)


async def test_repeated_charge_is_ignored(database: Database, ledger: Ledger) -> None:
    await ledger.record([])
    await ledger.record([CHARGE])
    await ledger.record(
        [charge("j1", audio_ms=9), charge("j1", MeteredService.SPEECH), charge("j1", MeteredService.SPEECH)]
    )
    assert await lines(SqlLedger(database)) == [CHARGE, charge("j1", MeteredService.SPEECH)]


async def test_each_session_step_is_one_line(ledger: SqlLedger) -> None:
    steps = [charge("s1", MeteredService.SESSION, step=step, at_ms=NOVEMBER + step) for step in range(3)]
    await ledger.record(steps[:2])
    await ledger.record([msgspec.structs.replace(one, audio_ms=9) for one in steps[:2]] + steps[2:])
    assert await lines(ledger) == steps
    (total,) = await ledger.totals(EVER)
    assert (total.service, total.jobs, total.audio_ms) == (MeteredService.SESSION, 1, 3 * CHARGE.audio_ms)


async def test_concurrent_identical_charges_are_recorded_once(others: list[Database], ledger: SqlLedger) -> None:
    charges = [charge(f"j{n}") for n in range(5)]
    await asyncio.gather(*(SqlLedger(one).record(charges) for one in others))
    assert [one.job for one in await lines(ledger)] == [f"j{n}" for n in range(5)]


async def test_batch_is_recorded_atomically(ledger: SqlLedger) -> None:
    with pytest.raises(IntegrityError):
        await ledger.record([CHARGE, charge("j2", project=None)])
    assert await lines(ledger) == []


async def test_totals_group_by_month_project_and_service(database: Database, ledger: SqlLedger) -> None:
    accounts = Accounts(database)
    organization, _ = await accounts.create_organization("Zoo")
    apes, _ = await accounts.create_project("apes")
    mine: dict[str, Any] = {"project": apes.id, "organization": organization.id}
    await ledger.record(
        [
            charge("j1", **mine),
            charge("j2", **mine, audio_ms=2, at_ms=NOVEMBER + 1),
            charge("j3", **mine, model="other@2"),
            charge("j3", MeteredService.SPEECH, **mine, audio_ms=3_000_000_000_000),
            charge("j4", **mine, at_ms=NOVEMBER - 1),
            charge("j5"),
        ]
    )
    total = UsageTotal(
        "2026-11", apes.id, "apes", organization.id, MeteredService.SOUND, 3, 2470, ("other@2", "yamnet@1")
    )
    speech = msgspec.structs.replace(
        total, service=MeteredService.SPEECH, jobs=1, audio_ms=3_000_000_000_000, models=("yamnet@1",)
    )
    october = msgspec.structs.replace(total, month="2026-10", jobs=1, audio_ms=1234, models=("yamnet@1",))
    other = UsageTotal("2026-11", "p1", None, "o1", MeteredService.SOUND, 1, 1234, ("yamnet@1",))
    assert await ledger.totals(UsageFilter(project=apes.id)) == [october, total, speech]
    assert await ledger.totals(UsageFilter(organization="o1")) == [other]
    assert await ledger.totals(UsageFilter(project=apes.id, month="2026-11")) == [total, speech]
    assert await ledger.totals(UsageFilter(service=MeteredService.SPEECH)) == [speech]
    assert await ledger.totals(UsageFilter("o1", apes.id)) == []
    assert [one.job for one in await lines(ledger, UsageFilter(project=apes.id))] == ["j4", "j1", "j3", "j3", "j2"]
    await accounts.delete_organization("Zoo")
    assert await ledger.totals(UsageFilter(project=apes.id, month="2026-10")) == [
        msgspec.structs.replace(october, name=None)
    ]


async def test_paged_lines_hold_no_connection(monkeypatch: pytest.MonkeyPatch, ledger: SqlLedger) -> None:
    monkeypatch.setattr(ledger_module, "PAGE", 2)
    # Equal times, equal jobs, and neither.
    times = [
        (f"j{n}", service, NOVEMBER + n // 3)
        for n in range(5)
        for service in (MeteredService.SOUND, MeteredService.SPEECH)
    ]
    charges = [charge(job, service, at_ms=at) for job, service, at in times]
    await ledger.record(charges[::-1])
    assert [list(page) async for page in ledger.lines()] == [charges[n : n + 2] for n in range(0, 10, 2)]
    speech = [one for one in charges if one.service is MeteredService.SPEECH]
    assert await lines(ledger, UsageFilter(service=MeteredService.SPEECH)) == speech
    assert await lines(ledger, UsageFilter(project="p1", month="2026-11")) == charges
    assert await lines(ledger, UsageFilter(month="2026-10")) == await lines(ledger, UsageFilter(month="2026-12")) == []
    begun = [ledger.lines() for _ in range(20)]
    async with asyncio.timeout(30):
        for reading in begun:
            assert await anext(reading) == charges[:2]
    for reading in begun:
        await reading.aclose()


PERIODS = [
    UsageFilter(),
    UsageFilter("o"),
    UsageFilter(project="p"),
    UsageFilter(month="2026-11"),
    UsageFilter("o", "p", None, "2026-11"),
]


@SQLITE
@pytest.mark.parametrize("period", PERIODS)
async def test_page_query_seeks_by_index(
    tmp_path: Path, period: UsageFilter, database: Database, ledger: SqlLedger
) -> None:
    """Otherwise reading a ledger ten times as long would take a hundred times as long."""
    asked: list[tuple[str, Any]] = []

    def note(connection: object, cursor: object, statement: str, parameters: Any, *_: object) -> None:
        asked.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    assert await lines(ledger, period) == []
    event.remove(Engine, "before_cursor_execute", note)
    statement, parameters = asked[-1]
    async with database.reading() as connection:
        rows = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        (plan,) = [str(row.detail) for row in rows]
    assert "(month,at,job_id,service)>(?,?,?,?)" in plan


async def test_model_name_is_sanitised_and_truncated(ledger: SqlLedger) -> None:
    await ledger.record([charge("j1", model="\0" + "é" * 300)])
    assert [one.model for one in await lines(ledger)] == ["é" * 100]
