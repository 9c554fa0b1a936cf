"""Rows of usage: exact, unchanged by a round trip, and harmless in a spreadsheet."""

import asyncio
import csv
import io
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.admin import usage_rows as rows
from app.admin.usage_rows import LineRow, TotalRow, as_csv, paged, texts
from topics.ports.administration import UsageTotal
from topics.ports.ledger import Charge, MeteredService

TOTAL = UsageTotal("2026-11", "p", "apes", "o", MeteredService.SOUND, 2, 3_000_000_000_001, ("a@1", "b@2"))
CHARGE = Charge("j", MeteredService.SPEECH, "p", "o", 1234, "m", 1_793_491_199_999)


def as_text(kind: type[msgspec.Struct], rows: Sequence[msgspec.Struct]) -> str:
    async def story() -> str:
        return "".join([text async for text in as_csv(kind, paged(rows))])

    return asyncio.run(story())


@given(st.integers(0, 10**15), st.integers(0, 4 * 10**12), st.sampled_from(["apes", None]))
@settings(max_examples=50, deadline=None)
def test_rows_survive_round_trip(audio_ms: int, at_ms: int, name: str | None) -> None:
    total = msgspec.structs.replace(TOTAL, audio_ms=audio_ms, name=name)
    charge = msgspec.structs.replace(CHARGE, audio_ms=audio_ms, at_ms=at_ms)
    assert msgspec.json.decode(msgspec.json.encode(TotalRow.of(total)), type=TotalRow).total() == total
    assert msgspec.json.decode(msgspec.json.encode(LineRow.of(charge)), type=LineRow).charge() == charge
    assert texts(LineRow.of(charge))[3] == f"{audio_ms // 1000}.{audio_ms % 1000:03d}"


def test_line_contains_only_prefix_of_job_id() -> None:
    line = LineRow.of(msgspec.structs.replace(CHARGE, job="4bG4kCD3jAgwG3rLuU1AvCkY"))
    assert line.job == line.charge().job == "4bG4kCD3"


def test_row_as_text() -> None:
    row = ["2026-11", "apes", "sound_event_detection", "2", "3000000000.001", "a@1, b@2", "p", "o"]
    assert texts(TotalRow.of(TOTAL)) == row
    assert texts(LineRow.of(CHARGE))[0] == "2026-10-31T23:59:59.999+00:00"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "＝1", " =1", "\t=1", "\r=1", "\n=1"])
def test_formula_cells_are_escaped(name: str) -> None:
    row = TotalRow.of(msgspec.structs.replace(TOTAL, name=name, models=(name,)))
    text = as_text(TotalRow, [row])
    _, cells = csv.reader(io.StringIO(text, newline=""))
    assert cells[1] == cells[5] == "'" + "".join(letter if letter.isprintable() else " " for letter in name)


@pytest.mark.parametrize("name", ["a, b", 'say "hi"', "1-1", "a'b;c"])
def test_other_cells_are_unchanged(name: str) -> None:
    text = as_text(TotalRow, [TotalRow.of(msgspec.structs.replace(TOTAL, name=name))])
    assert list(csv.reader(io.StringIO(text, newline="")))[1][1] == name


def test_control_characters_become_spaces() -> None:
    row = LineRow.of(msgspec.structs.replace(CHARGE, model="a\r\nb\x1b[2Jc"))
    assert texts(row)[4] == "a  b [2Jc"


async def test_pages_cover_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PAGE", 2)
    assert [page async for page in paged(range(5))] == [range(2), range(2, 4), range(4, 5)]


def test_empty_table_has_header() -> None:
    assert as_text(LineRow, []) == "accepted_at,job,service,audio_seconds,model,project_id,organization_id,step\n"
