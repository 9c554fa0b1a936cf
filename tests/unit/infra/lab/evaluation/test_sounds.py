"""Sound models on recordings: a folder with a CSV, operating points, and the report."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile

from infra.lab.evaluation import recordings, report, scenes, sound, user_recordings
from infra.lab.evaluation.labels import LABELS, Meaning
from infra.lab.evaluation.recordings import Recording, SkippedRecording, Span
from infra.lab.evaluation.scenes import Setting
from streams.audio.decode import DecodedAudio
from streams.models.manifest import (
    Context,
    Graph,
    Heads,
    LogMel,
    Manifest,
    ModelTag,
    Output,
    SecondModel,
    SecondTag,
    Waveform,
)
from streams.models.protocol import ContextEngine, Floats, SoundEngine
from topics.errors import BadRequest

pytestmark = pytest.mark.slow

RATE = 1000
LOUD, DEEP = Meaning(("Loud",)), Meaning(("Deep",))


class Levels(SoundEngine):
    """Scores `Loud` by the mean of the middle of a patch, `Deep` by its negative, at least 0.01."""

    def __init__(self, *points: float) -> None:
        tags = tuple(
            ModelTag(name, "Test", (n,), point)
            for n, (name, point) in enumerate(zip(("Loud", "Deep"), points, strict=True))
        )
        graph = Graph("model.onnx", "0" * 64)
        self.manifest = Manifest("levels", "1", "CC0-1.0", "here", graph, Waveform(RATE, RATE), ("loud", "deep"), tags)

    def scores(self, patch: Floats) -> Floats:
        middle = float(patch[400:600].mean())
        return np.array([max(middle, 0.01), max(-middle, 0.01)], np.float32)


def recording(name: str, levels: list[float], *spans: Span, label: str = "") -> Recording:
    """Return a recording with one level per second."""
    samples = np.repeat(np.array(levels, np.float32), RATE)
    return Recording(name, label, spans, DecodedAudio(RATE, samples), name)


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


# --- operating points of bundled models, and of models for a user's recordings ------------------------------------

BEFORE = Levels(0.9, 0.9)


def given() -> list[Recording]:
    """Return loud recordings that the model scores too low, and others that it scores slightly."""
    random = np.random.default_rng(0)
    loud = [recording(f"l{n}", [random.uniform(0.5, 0.8)] * 4, Span(LOUD), label="Loud") for n in range(12)]
    return loud + [recording(f"o{n}", [random.uniform(-0.3, 0.3)] * 4, label="other") for n in range(12)]


class Two(Levels):
    """A second model that scores recordings at their level, and streams lower."""

    def __init__(self) -> None:
        super().__init__(0.5, 0.5)
        front = LogMel(RATE, 20, 4, 16, 10, 16, 0.0, 500.0, 1e-10)
        context = Context(20, 1000, Heads("heads.npy", "0" * 64), (0.5, 0.5))
        graph, tags = Graph("second.onnx", "0" * 64), (SecondTag(),) * 2
        second = SecondModel(
            "two", "1", "CC0-1.0", "here", graph, front, Output(), 2, tags, 0.5, 0.0, stream=context, recording=context
        )
        self.manifest = msgspec.structs.replace(self.manifest, second=second)

    @property
    def second(self) -> ContextEngine:
        return self

    def hear(self, frames: Floats, recording: bool) -> tuple[Floats, Floats]:
        return np.full(2, 1.0 if recording else 0.6, np.float32), np.zeros(1, np.float32)

    def combine(self, scores: Floats, context: Callable[[], Floats]) -> Floats:
        return scores * context()


def test_streams_and_recordings_get_separate_points() -> None:
    made = user_recordings.calibrate(Two(), given(), [], None).manifest
    assert 0.2 < made.points(recording=False)[0] < made.points(recording=True)[0] < 0.5


def test_calibration_finds_missed_recordings() -> None:
    outcome = user_recordings.calibrate(BEFORE, given(), [SkippedRecording("x", "unknown label")], None)
    before, after, crossed = (line.plain for line in outcome.report.lines)
    assert before.clip_recall == 0.0
    assert after.clip_recall >= crossed.clip_recall > 0.8
    loud, deep = outcome.manifest.tags
    assert 0.3 < loud.point < 0.6
    assert loud.clips == 12
    assert (deep.point, deep.clips) == (0.9, 0)  # no recordings, and no false events
    assert outcome.manifest.model_id != BEFORE.manifest.model_id
    assert outcome.report.skipped == (SkippedRecording("x", "unknown label"),)


def test_false_event_budget_is_kept_and_used() -> None:
    random = np.random.default_rng(3)
    mixed = [recording(f"l{n}", [random.uniform(0.1, 0.8)] * 4, Span(LOUD)) for n in range(20)]
    mixed += [recording(f"o{n}", [random.uniform(0.1, 0.6)] * 4) for n in range(20)]
    found = [user_recordings.calibrate(BEFORE, mixed, [], wanted).report.lines[1].plain for wanted in (0.4, 4.0)]
    assert found[0].false_events_per_minute <= 0.4 < found[1].false_events_per_minute <= 4.0
    assert found[0].clip_recall < found[1].clip_recall


def test_too_few_recordings_are_rejected() -> None:
    with pytest.raises(BadRequest):
        user_recordings.calibrate(BEFORE, given()[:1], [], None)
    with pytest.raises(BadRequest, match="no recording has a tag of the model"):
        user_recordings.calibrate(BEFORE, [recording("a", [0.1] * 3), recording("b", [0.1] * 3, Span(DEEP))], [], None)


# --- the report on a made-up data directory: two sounds, a little speech, one scene per half ------------------------


class Power(SoundEngine):
    """Scores rain at high power, speech at low power, wind near silence."""

    def __init__(self) -> None:
        names = ("Rain", "Wind_noise", "Speech")
        tags = tuple(ModelTag(name, "Test", (n,), 0.9) for n, name in enumerate(names))
        base = Levels(0.5, 0.5).manifest
        self.manifest: Manifest = msgspec.structs.replace(base, tags=tags, classes=names)

    def scores(self, patch: Floats) -> Floats:
        power = float(np.square(patch).mean())
        scores = np.full(3, 0.02, np.float32)
        scores[0 if power > 1e-5 else 2 if power > 1e-7 else 1] = 0.6
        return scores


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scenes, "SETTINGS", (Setting("room", ("wind",), ("rain",)),))
    monkeypatch.setattr(scenes, "SECONDS", 90)
    random = np.random.default_rng(0)
    clips = ["file,label,fold,src"]
    for folder in ("sound", "speech"):
        (tmp_path / folder).mkdir()
    for n in range(8):  # resampled to the model's rate, noise keeps a sixteenth of its power
        label, level = ("rain", 0.1) if n % 2 else ("wind", 0.0001)
        samples = level * random.standard_normal(3 * scenes.RATE)
        soundfile.write(tmp_path / "sound" / f"c{n}.ogg", samples, scenes.RATE)
        clips.append(f"c{n},{label},1,{n}")
    (tmp_path / "sound" / "clips.csv").write_text("\n".join(clips) + "\n")
    for n in range(2):
        soundfile.write(tmp_path / "speech" / f"s{n}.ogg", 0.003 * random.standard_normal(8 * scenes.RATE), scenes.RATE)
    (tmp_path / "speech" / "utterances.csv").write_text("file,speaker\ns0,a\ns1,b\n")
    return tmp_path


def test_report_has_plain_and_cross_checked_lines(data: Path) -> None:
    engine = Power()
    found = report.evaluate_bundled(engine, data, engine)
    assert [(line.material, line.recordings) for line in found.lines] == [
        ("clips", 8),
        ("clips, cross-checked", 8),
        ("scenes", 2),
        ("scenes, cross-checked", 2),
        ("speech", 2),
        ("speech, cross-checked", 2),
    ]
    as_shipped, crossed = found.lines[0].plain, found.lines[1].plain
    assert as_shipped.clip_recall == 0.0  # the points are far too high,
    assert crossed.clip_recall == 1.0  # but each half sets them for the other
    assert found.figures["clip_recall"] == 1.0
    # The rain of both scenes, one of ten sounds: the wind behind it is too faint here.
    assert found.figures["scenes_sound_recall"] == 0.1
    assert found.figures["window_ms_ratio"] == 1.0
    assert "ten_class_clip_accuracy" not in found.figures  # the model lacks the ten classes
    assert "scenes_clip_recall" not in found.figures
    assert not found.seen
    assert [(tag.tag, tag.clips, tag.found) for tag in found.tags] == [
        ("Rain", 4, 0),
        ("Wind_noise", 4, 0),
        ("Speech", 2, 0),
    ]
