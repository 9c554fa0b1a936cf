"""The tables of recordings: classes, folds that no source is in twice, and refusals in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.lab.training.clips import KNOWN, LABELS, read_clips
from tests.recordings import TRAINING
from tests.unit.infra.lab.training.recordings import write
from topics.errors import AudioError, EngineError


def test_reads_sounds_and_speech(tmp_path: Path) -> None:
    rows = ["a,3,dog,1,17,http://a,Ann,CC0", "b,4,wind,0,18,http://b,Bob,CC-BY", "c,4,cat,0,18,http://c,Bob,CC-BY"]
    dog, wind, cat, reader = read_clips(write(tmp_path, rows, ["s,train,19,F,3.0,CC-BY-4.0"]))
    assert (dog.label, dog.known, dog.fold, dog.licence) == ("dog", LABELS.index("dog"), 3, "CC0")
    assert (wind.known, wind.author, wind.url) == (None, "Bob", "http://b")
    assert wind.fold == cat.fold, "one source, one fold"
    assert (reader.label, reader.known, reader.author) == ("speech", 0, "LibriSpeech reader 19")
    assert len(reader.samples()) == 48_000


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"clips\.csv: No such file"):
        read_clips(tmp_path)
    (clip,) = read_clips(write(tmp_path, ["a,3,dog,1,17,http://a,Ann,CC0"], []))
    clip.path.write_bytes(b"no audio")
    with pytest.raises(AudioError, match=r"^a\.ogg: "):
        clip.samples()
    (tmp_path / "speech" / "utterances.csv").write_text("file\n")
    with pytest.raises(EngineError, match="has no column licence, speaker"):
        read_clips(tmp_path)


def test_no_source_is_in_two_folds() -> None:
    clips = read_clips(TRAINING)
    assert len(clips) == 617 + 251
    folds: dict[str, set[int]] = {}
    for clip in clips:
        source = clip.path.stem.split("-")[1] if clip.label != "speech" else clip.author
        folds.setdefault(source, set()).add(clip.fold)
    assert max(len(found) for found in folds.values()) == 1
    assert {clip.label for clip in clips} >= {label for label, _, _ in KNOWN}
