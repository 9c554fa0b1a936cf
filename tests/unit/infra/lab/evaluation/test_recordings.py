"""A folder with a CSV: rows read, skipped and refused, and a model's results."""

from pathlib import Path

import pytest

from infra.lab.evaluation import recordings, sound
from infra.lab.evaluation.labels import LABELS, Meaning
from infra.lab.evaluation.recordings import Span
from streams.models.manifest import ModelTag
from tests.unit.infra.lab.evaluation.engines import DEEP, LOUD, Levels, recording
from topics.errors import BadRequest

pytestmark = pytest.mark.slow

TAGS = (ModelTag("Dog_bark", "Animal", (0,), 0.5), ModelTag("Kettle", "Home", (1,), 0.5))
DOG, KETTLE = Meaning(("Dog_bark",)), Meaning(("Kettle",))


def written(folder: Path, text: str) -> Path:
    path = folder / "clips.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_of_one_file_become_its_spans(tmp_path: Path) -> None:
    table = written(
        tmp_path,
        "file,label,start,end,fold,source\na.wav,Dog_bark,1,2.5,3,yard\na.wav,Kettle,4,,3,yard\nb.wav,,,,,\nc.wav,Kettle,,,,\n",
    )
    found, skipped = recordings.read_folder(tmp_path, table, recordings.label_meanings(TAGS))
    assert not skipped
    assert [recording.spans for recording in found] == [
        (Span(DOG, 1.0, 2.5), Span(KETTLE, 4.0)),
        (),
        (Span(KETTLE, 0.0, recordings.ENDLESS),),
    ]
    assert [(made.name, made.source, made.fold, made.audio) for made in found[:2]] == [
        ("a.wav", "yard", "3", tmp_path / "a.wav"),
        ("b.wav", "b.wav", "", tmp_path / "b.wav"),
    ]


def test_label_table_overrides_built_in_labels(tmp_path: Path) -> None:
    table = written(tmp_path, "label,tags,tolerated\ndog,Kettle,Dog_bark\nquiet,,\n")
    known = recordings.label_meanings(TAGS, table)
    assert known["dog"] == Meaning(("Kettle",), ("Dog_bark",))
    assert known["quiet"] == Meaning(())
    assert known["Kettle"] == KETTLE
    assert known["rain"] == LABELS["rain"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("file\na.wav\n", "has no column label"),
        ("file,label\n", "has no rows"),
        ("file,label\n,Kettle\n", "row 2 is incomplete"),
        ("file,label\na.wav,Kettle\nb.wav\n", "row 3 is incomplete"),
        ("file,label,start\na.wav,Kettle,soon\n", "a.wav: start and end are seconds: could not convert"),
        ("file,label,start,end\na.wav,Kettle,2,1\n", "a.wav: from 2 s to 1 s is not a stretch of time"),
        ("file,label,start\na.wav,Kettle,nan\n", "a.wav: from nan s to inf s is not a stretch of time"),
    ],
)
def test_invalid_table_is_rejected_in_one_line(tmp_path: Path, text: str, fault: str) -> None:
    table = written(tmp_path, text)
    with pytest.raises(BadRequest) as refused:
        recordings.read_folder(tmp_path, table, recordings.label_meanings(TAGS))
    assert str(refused.value).startswith(f"{table}: {fault}")
    assert "\n" not in str(refused.value)


def test_unreadable_table_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="No such file"):
        recordings.read_rows(tmp_path / "none.csv", ())
    (tmp_path / "noise.csv").write_bytes(b"file,label\n\xff\xfe\x00,x\n")
    with pytest.raises(BadRequest, match="not a CSV in UTF-8"):
        recordings.read_rows(tmp_path / "noise.csv", ())
    with pytest.raises(BadRequest, match="the tag Zebra, which the model does not have"):
        recordings.label_meanings(TAGS, written(tmp_path, "label,tags\nz,Zebra\n"))


def test_windows_are_scored_against_spans() -> None:
    given = recording("a", [0.0, 0.0, 0.9, 0.9, 0.0], Span(LOUD, 2.0, 4.0), Span(DEEP))
    scored = sound.score_recordings(Levels(0.5, 0.5), [given])
    assert scored.reported[:, 0].tolist() == [False, False, False, False, True, True, True, False, False]
    # Half a second within the span makes the tag true, any overlap makes it allowed.
    assert scored.truth.true[:, 0].tolist() == [False, False, False, True, True, True, True, True, False]
    assert scored.truth.allowed[:, 0].tolist() == scored.truth.true[:, 0].tolist()
    assert scored.truth.true[:, 1].all()
    assert scored.truth.audible.tolist() == [False, False, False, True, True, True, True, True, False]
    assert scored.truth.minutes == pytest.approx(5 / 60)
