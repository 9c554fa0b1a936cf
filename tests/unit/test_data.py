"""`tests/data` lists its authors, and agrees with its tables."""

import re
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile

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
