"""The repository: data with their authors, packages and classes with their documentation, and the run of all stages."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile

from tests.__main__ import Case, Ran, Stage, run, summary
from tests.recordings import DATA, SOUND, SPEECH, TRAINING, rows, utterances

TABLES = ("sound/clips.csv", "speech/utterances.csv")
LIBRISPEECH = "https://www.openslr.org/12/"
LICENCES = {"CC0", "CC-BY", "CC-BY-4.0", "Apache-2.0"}


def listed() -> dict[str, tuple[str, str, str]]:
    """Return the table of the README: (author, source, licence) by file."""
    text = (DATA / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (\w+/\S+) \| (.+) \| (http\S+) \| (\S+) \|$", text, re.M)
    return {file: (author, source, licence) for file, author, source, licence in lines}


def test_readme_lists_every_file_with_author_and_licence() -> None:
    files = {path.relative_to(DATA).as_posix(): path for path in DATA.rglob("*") if path.is_file()}
    tables = {f"{folder}{name}" for folder in ("", "training/") for name in TABLES}
    assert files.keys() == {"README.md"} | tables | listed().keys()
    assert {licence for _, _, licence in listed().values()} == LICENCES
    assert sum(path.stat().st_size for path in files.values()) < 8_000_000


def test_readme_agrees_with_tables() -> None:
    clips = {
        f"sound/{row['file']}.ogg": (row["author"], row["source_url"], row["licence"])
        for row in rows(SOUND / "clips.csv")
    }
    speech = {
        f"speech/{row['file']}.ogg": (f"LibriSpeech reader {row['speaker']}", LIBRISPEECH, row["licence"])
        for row in rows(SPEECH / "utterances.csv")
    }
    assert (len(clips), len(speech)) == (41, 27)
    assert {file: line for file, line in listed().items() if file.endswith(".ogg")} == clips | speech
    assert all(f"/{author}/" in unquote(source) for author, source, _ in clips.values())


@pytest.mark.parametrize("table", TABLES)
def test_tables_are_subsets_of_training_tables(table: str) -> None:
    ours, whole = (folder.joinpath(table).read_text("utf-8").splitlines() for folder in (DATA, TRAINING))
    assert [line for line in whole if line in ours] == ours


def test_recordings_have_listed_duration() -> None:
    seconds = {row["file"]: float(row["seconds"]) for row in rows(SPEECH / "utterances.csv")}
    seconds |= {row["file"]: 5.0 for row in rows(SOUND / "clips.csv")}
    for path in (*utterances(), *SOUND.glob("*.ogg")):
        samples, rate = soundfile.read(path)
        assert (samples.ndim, rate, len(samples) / rate) == (1, 16_000, pytest.approx(seconds.pop(path.stem), abs=0.01))
        assert np.abs(samples).max() > 0.01
    assert not seconds


ROOT = Path(__file__).parents[2]
ROOTS = ("app", "streams", "topics", "infra", "benchmarks")


def rooms() -> Iterator[Path]:
    """Yield the roots and the packages directly in them."""
    for root in ROOTS:
        yield ROOT / root
        if root in ("app", "streams", "infra"):
            yield from sorted(path.parent for path in (ROOT / root).glob("*/__init__.py"))


@pytest.mark.parametrize("room", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in rooms()])
def test_every_package_has_readme(room: Path) -> None:
    lines = (room / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len([line for line in lines if line.strip()]) >= 4


REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_one" time="0.5" />
<testcase classname="tests.a" name="test_two" time="2.0"><failure message="no">no</failure></testcase>
<testcase classname="tests.b" name="test_three" time="0.1"><skipped message="no Java" /></testcase>
</testsuite></testsuites>"""


def test_summary_lists_failures_and_ends_with_counts(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text(REPORT)
    ran = run(Stage("some", (sys.executable, "-c", "raise SystemExit(1)"), pytest=False), report, ())
    assert ran.cases == [
        Case("tests.a::test_one", "passed", 0.5),
        Case("tests.a::test_two", "failed", 2.0),
        Case("tests.b::test_three", "skipped", 0.1),
    ]
    lines = list(summary([ran]))
    assert "  tests.a::test_two" in lines
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"


@pytest.mark.parametrize(("status", "failed"), [(0, []), (2, ["check (status 2)"])])
def test_stage_without_report_fails_on_nonzero_status(status: int, failed: list[str]) -> None:
    assert Ran(Stage("check", (), pytest=False), status, 1.0, []).failed == failed


SAID: Final = re.compile(r"\b(loop only|any thread|one thread at a time)\b", re.IGNORECASE)
#: Values, or descriptions of values, have no thread.
VALUES: Final = {"BaseException", "Enum", "Exception", "NamedTuple", "Protocol", "StrEnum", "Struct", "Structure"}


def classes(room: str) -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(ROOT), node


def test_each_class_documents_its_thread_safety() -> None:
    bases, streams = defaultdict[str, set[str]](set), list(classes("streams"))
    for _, node in (*classes("topics"), *streams):
        # The last parts of their names, without type parameters.
        bases[node.name] |= {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}

    def is_value(name: str) -> bool:
        return name in VALUES or any(map(is_value, bases.get(name, ())))

    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in streams
        if not is_value(node.name) and not SAID.search(ast.get_docstring(node) or "")
    ]
    assert silent == []
