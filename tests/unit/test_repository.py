"""The repository: data with their authors, packages and classes with their documentation, and the run of all stages."""

import ast
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile

from tests import groups
from tests.__main__ import ELSEWHERE, STAGES, Case, Ran, Stage, record, run, run_beside, summary
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


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def loops_over_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that an `async for` iterates over directly, so that nothing closes what they return."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFor) or (isinstance(node, ast.comprehension) and node.is_async):
            looped = node.iter
            if isinstance(looped, ast.Call) and not ast.unparse(looped.func).endswith(
                (".aiter_raw", ".aiter_bytes", ".iter_any")
            ):
                yield looped


def test_async_generators_are_closed_by_their_readers() -> None:
    """A loop that is left early leaves its generator, with its locks and connections, to the garbage collector.

    `async with aclosing(...)` closes it. httpx closes its generators with their response, and the client's are objects.
    """
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for root in ROOTS
        for path in (ROOT / root).rglob("*.py")
        if (ROOT / "app" / "client") not in path.parents and "async for" in path.read_text("utf-8")
        for call in loops_over_calls(parsed(path))
    ]
    assert not found
    [call] = loops_over_calls(ast.parse("async def read():\n  async for one in log.read(tp):\n    pass"))
    assert ast.unparse(call) == "log.read(tp)"


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


def test_summary_lists_failures_and_ends_with_counts_and_time(tmp_path: Path) -> None:
    (tmp_path / "unit").write_text(REPORT)
    fails = Stage("unit", (sys.executable, "-c", "raise SystemExit(1)"), pytest=False)
    ran = run(fails, tmp_path, (), shown=False)
    assert ran.cases == [
        Case("tests.a::test_one", "passed", 0.5),
        Case("tests.a::test_two", "failed", 2.0, "no"),
        Case("tests.b::test_three", "skipped", 0.1, "no Java"),
    ]
    lines = list(summary([ran], 61.4))
    assert lines[lines.index("  tests.a::test_two") + 1] == "      no"
    assert lines[-1] == "1 passed, 1 failed, 1 skipped in 61 s"


def test_summary_shows_the_end_of_a_stage_that_failed_without_a_failed_test(tmp_path: Path) -> None:
    (tmp_path / "unit").write_text('<testsuite><testcase classname="tests.a" name="test_one" time="0.5" /></testsuite>')
    program = "print('early'); print('\\n' * 20); raise SystemExit('late')"
    ran = run(Stage("unit", (sys.executable, "-c", program), pytest=False), tmp_path, (), shown=False)
    lines = list(summary([ran], 61.4))
    assert "  unit (status 1)" in lines
    assert "      late" in lines
    assert "      early" not in lines
    assert lines[-1] == "1 passed, 1 failed, 0 skipped in 61 s"


def test_stages_run_beside_each_other_with_ports_of_their_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each waits for the other; only the output of the first lane is shown at once."""
    meet = """if True:
        import os, pathlib, sys, time
        own, other = (pathlib.Path(sys.argv[1], name) for name in sys.argv[2:])
        own.touch()
        while not other.exists():
            time.sleep(0.01)
        from tests.ports import PORTS
        print(sys.argv[2], PORTS[0], os.getpriority(os.PRIO_PROCESS, 0))
    """
    pairs = [("service", "unit", 0), ("unit", "service", 3)]
    lanes = [
        [Stage(one, (sys.executable, "-c", meet, str(tmp_path), f"{one}-is-there", f"{other}-is-there"), False, nice)]
        for one, other, nice in pairs
    ]
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert [ran.status for ran in run_beside(lanes, tmp_path, ())] == [0, 0]
    said = [line.split() for line in capfd.readouterr().out.splitlines() if "-is-there" in line]
    assert [(name, int(nice)) for name, _, nice in said] == [("service-is-there", mine), ("unit-is-there", mine + 3)]
    assert said[0][1] != said[1][1]


def test_every_test_is_in_one_stage() -> None:
    """Nothing runs twice, and nothing is left out."""
    stages = [one for lanes in STAGES for lane in lanes for one in lane if one.pytest]
    folders = {f"tests/{path.relative_to(ROOT / 'tests').parts[0]}" for path in (ROOT / "tests").glob("*/**/test_*.py")}
    own = {word for one in stages for word in one.arguments if word in folders}
    assert {word.removeprefix("--ignore=") for word in ELSEWHERE} == own
    for folder in own:
        assert not [path for path in (ROOT / folder).rglob("test_*.py") if re.search(r"mark\.alone", path.read_text())]
    marks = [one.arguments[one.arguments.index("-m") + 1] for one in stages if "-m" in one.arguments]
    assert marks == ["not alone", "alone"]


def test_durations_are_recorded_by_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "DURATIONS", tmp_path / "durations.txt")
    names = ("contract.test_a::test_x[kafka]", "interop.test_b::test_y[kafka]", "recovery.test_c::test_z[kafka-1]")
    cases = [Case(f"tests.{name}", "passed", 20.2) for name in (*names, "recovery.test_c::test_z[embedded-1]")]
    record(Ran(STAGES[0][0][0], 0, 1.0, 1.0, cases))
    groups.durations.cache_clear()
    kept = groups.durations()
    groups.durations.cache_clear()
    assert kept == {"kafka": 40, "tests/recovery/test_c.py on Kafka": 20, "tests/recovery/test_c.py": 20}


def test_recorded_groups_exist() -> None:
    for name in groups.durations():
        assert name == "kafka" or (ROOT / name.removesuffix(" on Kafka")).exists(), (
            f"{name}: `python -m tests --record`"
        )


@pytest.mark.parametrize(("status", "failed"), [(0, []), (2, ["check (status 2)"])])
def test_stage_without_report_fails_on_nonzero_status(status: int, failed: list[str]) -> None:
    ran = Ran(Stage("check", (), pytest=False), status, 1.0, 1.0, [])
    assert [case.name for case in ran.failed] == failed


SAID: Final = re.compile(r"\b(loop only|any thread|one thread at a time)\b", re.IGNORECASE)
#: Values, or descriptions of values, have no thread.
VALUES: Final = frozenset(
    ("BaseException", "Enum", "Exception", "KafkaError", "NamedTuple", "Protocol", "StrEnum", "Struct", "Structure")
)


def classes(room: str) -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(ROOT), node


def test_no_test_replaces_sleep_for_all_threads() -> None:
    """A server of the session sleeps meanwhile: it would never wake up, and its fixture never end."""
    replaced = re.compile(r"""setattr\(asyncio, "sleep"|"[\w.]+\.asyncio\.sleep\"""")
    found = [str(path) for path in ROOT.glob("tests/**/*.py") if replaced.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_types_are_not_decoded_for_the_first_time_by_threads() -> None:
    """msgspec 0.22 crashes the process if two threads do; a decoder that is made at import has all that it needs.

    `app/http/faults.py` reads again what such a decoder has refused.
    """
    places = [path for room in ("app", "streams", "topics", "infra/models") for path in (ROOT / room).rglob("*.py")]
    decoding = re.compile(r"msgspec\.(json|msgpack)\.decode\(")
    left = {ROOT / "app/http/faults.py", *(ROOT / "app/client").rglob("*.py")}
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in places
        if path not in left and decoding.search(path.read_text("utf-8"))
        for function in ast.walk(parsed(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and decoding.fullmatch(f"{ast.unparse(call.func)}(")
        and any(one.arg == "type" and ast.unparse(one.value) != "msgspec.Raw" for one in call.keywords)
    ]
    assert not found


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


#: What a recipe of the Makefile runs for more than a second or two.
SLOW: Final = re.compile(r"pip install|npm ci|\$\(UV\) sync|infra\.compile")


def test_installing_says_what_it_does_before_it_does_it() -> None:
    """On standard error, so that it is seen with and without a terminal, and no output has it."""
    rules = re.findall(r"^([^\s#].*?):[^=\n]*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    installing = {target: recipe.splitlines() for target, recipe in rules if "/" in target and SLOW.search(recipe)}
    assert len(installing) == 5
    for target, recipe in installing.items():
        said = [line.startswith("\t@echo ") and line.endswith(">&2") for line in recipe]
        assert said[0], f"{target} begins without a word"
        for line, before in zip(recipe[1:], said, strict=False):
            assert before or "infra.compile" not in line, f"{target}: {line}"
