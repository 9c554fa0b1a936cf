"""Labelled recordings: those of a folder with a CSV, and those that bundled models are measured on."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from infra.lab.evaluation.labels import LABELS, Meaning
from streams.audio.decode import DecodedAudio, decode_chunk
from streams.models.manifest import ModelTag
from topics.errors import AudioError, BadRequest
from topics.media import parse

ENDLESS: Final = float("inf")
ANY: Final = parse("application/octet-stream")

Row = Mapping[str, str]


class Span(msgspec.Struct, frozen=True):
    """A sound from `start` to `end`, in seconds from the beginning of the recording."""

    meaning: Meaning
    start: float = 0.0
    end: float = ENDLESS


class Recording(msgspec.Struct, frozen=True):
    """A recording, from one file or mixed from several, with all its sounds."""

    name: str
    label: str
    spans: tuple[Span, ...]
    audio: Path | DecodedAudio
    #: Recordings of one source are never on both sides of a cross-check.
    source: str
    fold: str = ""

    def decode(self) -> DecodedAudio:
        """Decode the samples.

        Raises:
            AudioError: The file cannot be read or does not decode.
        """
        if isinstance(self.audio, DecodedAudio):
            return self.audio
        return read_audio(self.audio)


class SkippedRecording(msgspec.Struct, frozen=True):
    """A recording that was skipped, and why."""

    name: str
    cause: str


def read_audio(path: Path) -> DecodedAudio:
    """Decode a file of any format.

    Raises:
        AudioError: It cannot be read or does not decode; the message does not name it.
    """
    try:
        return decode_chunk(path.read_bytes(), ANY)
    except OSError as error:
        raise AudioError(error.strerror or str(error)) from error


def sound_clips(data: Path) -> list[Recording]:
    """Return the labelled clips of a data directory, `sound/clips.csv`.

    Raises:
        BadRequest: They are missing.
    """
    return [
        Recording(
            name=row["file"],
            label=row["label"],
            spans=(Span(LABELS[row["label"]]),),
            audio=data / "sound" / f"{row['file']}.ogg",
            source=row["src"],
            fold=row["fold"],
        )
        for row in read_rows(data / "sound" / "clips.csv", ("file", "label", "src", "fold"))
    ]


def speech_utterances(data: Path) -> list[Recording]:
    """Return the clean speech of a data directory, `speech/utterances.csv`.

    Raises:
        BadRequest: It is missing.
    """
    return [
        Recording(
            name=row["file"],
            label="speech",
            spans=(Span(LABELS["speech"]),),
            audio=data / "speech" / f"{row['file']}.ogg",
            source=row["speaker"],
        )
        for row in read_rows(data / "speech" / "utterances.csv", ("file", "speaker"))
    ]


def read_folder(
    directory: Path, table: Path, meanings: Mapping[str, Meaning]
) -> tuple[list[Recording], list[SkippedRecording]]:
    """Return the recordings that a CSV names, with paths relative to a directory, and the skipped ones.

    The columns are `file` and `label`, optionally `start` and `end` (seconds), `fold` and `source`. A file with several
    rows has all their labels. An empty label stands for background, where every tag is false. Files with an unknown
    label are skipped, because nothing tells which tags are false in them.

    Raises:
        BadRequest: The table cannot be read; the message names the line.
    """
    by_file: dict[str, list[Row]] = {}
    for row in read_rows(table, ("file", "label")):
        by_file.setdefault(row["file"], []).append(row)
    recordings, skipped = [], []
    for file, rows_of_file in by_file.items():
        unknown = sorted({row["label"] for row in rows_of_file} - meanings.keys() - {""})
        if unknown:
            skipped.append(SkippedRecording(file, f"unknown label {', '.join(unknown)}"))
            continue
        spans = [Span(meanings[row["label"]], *_times(table, row)) for row in rows_of_file if row["label"]]
        first = rows_of_file[0]
        recordings.append(
            Recording(
                name=file,
                label=" ".join(sorted({row["label"] for row in rows_of_file})),
                spans=tuple(spans),
                audio=directory / file,
                source=first.get("source") or file,
                fold=first.get("fold") or "",
            )
        )
    return recordings, skipped


def halves(recordings: Sequence[Recording]) -> tuple[list[Recording], list[Recording]]:
    """Split recordings into two parts with no common source, dividing the sources of each label evenly."""
    second: set[str] = set()
    earlier: set[str] = set()
    for label in sorted({recording.label for recording in recordings}):
        sources = sorted({recording.source for recording in recordings if recording.label == label} - earlier)
        second.update(sources[1::2])
        earlier.update(sources)
    return (
        [recording for recording in recordings if recording.source not in second],
        [recording for recording in recordings if recording.source in second],
    )


def label_meanings(tags: Sequence[ModelTag], table: Path | None = None) -> dict[str, Meaning]:
    """Return the meaning of each label: names of the model's tags, labels of ESC-50, and labels of a table.

    The table is a CSV of `label` and `tags`, optionally `tolerated`: tag names separated by spaces.

    Raises:
        BadRequest: The table cannot be read, or names a tag that the model lacks.
    """
    names = {tag.name for tag in tags}
    by_label = {**LABELS, **{name: Meaning((name,)) for name in names}}
    for row in read_rows(table, ("label", "tags")) if table else ():
        meaning = Meaning(tuple(row["tags"].split()), tuple((row.get("tolerated") or "").split()))
        for name in (*meaning.true, *meaning.tolerated):
            if name not in names:
                raise BadRequest(f"{table}: label {row['label']} names the tag {name}, which the model does not have")
        by_label[row["label"]] = meaning
    return by_label


def read_rows(table: Path, columns: Sequence[str]) -> list[Row]:
    """Return the rows of a CSV that has at least these columns.

    Raises:
        BadRequest: It cannot be read, has no rows, or a row lacks a value of a column.
    """
    try:
        with table.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            for name in columns:
                if name not in (reader.fieldnames or ()):
                    raise BadRequest(f"{table}: has no column {name}")
            table_rows: list[Row] = list(reader)
    except OSError as error:
        raise BadRequest(f"{table}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadRequest(f"{table}: not a CSV in UTF-8: {error}") from error
    for number, row in enumerate(table_rows, 2):
        if any(row[name] is None for name in columns) or not row[columns[0]]:
            raise BadRequest(f"{table}: row {number} is incomplete")
    if not table_rows:
        raise BadRequest(f"{table}: has no rows")
    return table_rows


def _times(table: Path, row: Row) -> tuple[float, float]:
    try:
        start, end = float(row.get("start") or 0.0), float(row.get("end") or ENDLESS)
    except ValueError as error:
        raise BadRequest(f"{table}: {row['file']}: start and end are seconds: {error}") from error
    if not 0 <= start < end:
        raise BadRequest(f"{table}: {row['file']}: from {start:g} s to {end:g} s is not a stretch of time")
    return start, end
