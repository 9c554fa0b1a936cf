"""`tests/data` lists its authors, and neither code nor tests read anything outside the repository."""

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile

from tests.conftest import ROOT
from tests.recordings import DATA, SOUND, SPEECH, TRAINING, rows, utterances

ROOMS = ("app", "benchmarks", "infra", "streams", "tests", "topics")
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


def climbs(path: Path) -> Iterator[tuple[int, int]]:
    """Yield (line, levels up) of every path that a module derives from `__file__` or `ROOT`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.expr):
            continue
        up, start = 0, node
        while True:
            match start:
                case ast.Attribute(value=inner, attr="parent"):
                    up += 1
                case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(int(count))):
                    up += count + 1
                case _:
                    break
            start = inner
        match start:
            case ast.Call(args=[ast.Name(id="__file__")]):
                yield node.lineno, up
            case ast.Name(id="ROOT") | ast.Attribute(attr="ROOT") if up:
                yield node.lineno, up + len(path.relative_to(ROOT).parts)


@pytest.mark.slow  # parses every module
def test_modules_use_no_paths_outside_repository() -> None:
    modules = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    climbed = [(path, line, up) for path in modules for line, up in climbs(path)]
    assert len(climbed) > 10
    assert [(path, line) for path, line, up in climbed if up > len(path.relative_to(ROOT).parts)] == []


@pytest.mark.parametrize("start", ["Path(__file__).parents[2]", "Path(__file__).parent.parent.parent", "ROOT.parent"])
def test_path_outside_repository_is_detected(start: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (module := tmp_path / "tests" / "module.py").parent.mkdir()
    module.write_text(f"DATA = {start} / 'recordings'\n")
    assert max(up for _, up in climbs(module)) == 3 > len(module.relative_to(tmp_path).parts)


@pytest.mark.parametrize("file", ["Makefile", ".ci/run"])
def test_commands_use_no_folder_outside_repository(file: str) -> None:
    # Only paths to the repository's root may go up.
    assert "../" not in (ROOT / file).read_text(encoding="utf-8").replace('"$(dirname "$0")/.."', "")


@pytest.mark.parametrize("target", ["evaluate", "train"])
def test_make_reports_missing_data_directory(target: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("DATA", "MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        ["make", "-s", target, f"DATA={tmp_path}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("DATA=DIR is needed: clips of ESC-50 in DIR/sound, utterances of LibriSpeech")
