"""Learnt tags: heads are evaluated on held-out recordings, and the command makes a model with one more sound."""

from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile
import typer
from typer.testing import CliRunner

from infra import models
from infra.cli import models as models_command
from infra.cli import train_tag
from infra.lab.training import added_tag
from infra.models.registry import Registry
from infra.teaching import background, heads, tags
from infra.teaching.heads import EmbeddedWindows
from infra.teaching.negatives import FOLDS, USER_LABEL, Negatives, gather
from streams.audio.analysis import Analysis
from streams.models import manifest as manifests
from streams.models.manifest import Manifest, ModelTag
from streams.models.protocol import Floats
from streams.models.sound_engine import OnnxSoundEngine
from tests.unit.infra.conftest import app_of, invoked
from topics.errors import BadRequest
from topics.geometry import SESSIONS
from topics.scores import ZERO

pytestmark = pytest.mark.slow

DIMENSION = 8
RECORDINGS, EACH = 100, 6


def vectors(count: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)


def sounds(count: int, axis: int = 0, seed: int = 2) -> list[EmbeddedWindows]:
    embeddings = vectors(count * EACH, seed).reshape(count, EACH, DIMENSION)
    embeddings[..., axis] += 5
    return [EmbeddedWindows(one, np.zeros(EACH, np.float32)) for one in embeddings]


def negatives() -> Negatives:
    recording = np.repeat(np.arange(RECORDINGS), EACH)
    label = np.where(recording < 20, USER_LABEL, np.where(recording < 60, "wind", "rain"))
    return Negatives(vectors(len(recording)), recording, recording % FOLDS, label)


def test_point_keeps_false_event_budget() -> None:
    learnt = tags.learn_tag(sounds(12), negatives(), 1.0)
    figures = learnt.figures
    assert (figures.clips, figures.recall, learnt.left_out) == (12, 1.0, ())
    assert figures.average_precision > 0.99
    assert figures.given_minutes == pytest.approx(20 * EACH / 120)
    assert figures.background_minutes == pytest.approx(80 * EACH / 60)
    events = figures.false_on_given * figures.given_minutes + figures.false_on_background * figures.background_minutes
    assert 0 < events <= figures.given_minutes + figures.background_minutes
    stricter = tags.learn_tag(sounds(12), negatives(), 0.0)
    assert stricter.figures.false_on_given == stricter.figures.false_on_background == 0
    # A lower budget moves only the point, which is in the bias.
    assert np.array_equal(stricter.head[:-1], learnt.head[:-1])
    assert stricter.head[-1] < learnt.head[-1]


def test_recordings_are_scored_by_held_out_heads() -> None:
    """One recording is unlike the others: if it were learnt from, it would be found."""
    odd = sounds(1, axis=5, seed=3)[0]
    positives = [*sounds(11), odd]
    own, _ = tags.held_out_logits(positives, negatives(), heads.feature_space(negatives().embeddings))
    assert own[-1] < own[:-1].min()
    head = heads.learn_head(
        positives, negatives().embeddings, negatives().weights, heads.feature_space(negatives().embeddings)
    )
    assert heads.logits(head, odd.embeddings).max() > own[-1] + 1


def test_background_clips_of_same_sound_are_left_out() -> None:
    against = negatives()
    same = np.concatenate([one.embeddings for one in sounds(8, seed=4)])
    at = np.repeat(np.arange(RECORDINGS, RECORDINGS + 8), EACH)
    with_it = Negatives(
        np.concatenate((against.embeddings, same)),
        np.concatenate((against.recording, at)),
        np.concatenate((against.fold, at % FOLDS)),
        np.concatenate((against.label, np.full(len(at), "bark"))),
    )
    learnt = tags.learn_tag(sounds(12), with_it, 1.0)
    assert learnt.left_out == ("bark",)
    assert learnt.figures.recall == 1.0
    # Given recordings are never skipped, because they are known not to be the sound.
    given = msgspec.structs.replace(with_it, label=np.where(with_it.label == "bark", USER_LABEL, with_it.label))
    assert tags.learn_tag(sounds(12), given, 1.0).left_out == ()


RATE = 16_000


@cache
def engine() -> OnnxSoundEngine:
    return OnnxSoundEngine(models.directory(models.YAMNET))


def test_tags_can_be_stacked_and_replaced(tmp_path: Path) -> None:
    patch = np.random.default_rng(5).normal(-4, 2, (96, 64)).astype(np.float32)
    found = engine().embed(patch)[1]
    zero = np.zeros(1025, np.float32)
    high, low = np.append(found, 0).astype(np.float32), np.append(-found, 0).astype(np.float32)
    base = engine().manifest
    one = added_tag.write(models.directory(models.YAMNET), base, "Whir", "Custom", high, 10, tmp_path / "one")
    two = added_tag.write(tmp_path / "one", one, "Clank", "Custom", low, 11, tmp_path / "two")
    three = added_tag.write(tmp_path / "two", two, "Whir", "Custom", zero, 12, tmp_path / "three")
    assert [tag.name for tag in two.tags] == [*(tag.name for tag in base.tags), "Whir", "Clank"]
    assert (one.version, two.version, three.version) == ("1+Whir", "1+Whir+Clank", "1+Whir+Clank")
    assert two.tags[-2].head is not None
    assert two.tags[-1] == ModelTag("Clank", "Custom", (), 0.5, two.tags[-2].head + 1, 11)
    assert len({manifest.model_id for manifest in (base, one, two, three)}) == 4
    plain = engine().scores(patch)
    for manifest, folder, wanted in ((two, "two", [1, 0]), (three, "three", [0.5, 0])):
        loaded = OnnxSoundEngine(tmp_path / folder)
        assert loaded.manifest == manifest
        scores = loaded.scores(patch)
        assert scores[:-2] == pytest.approx(plain, rel=1e-5)
        assert scores[-2:] == pytest.approx(wanted, abs=1e-3)


def test_bundled_tag_can_be_replaced(tmp_path: Path) -> None:
    base = engine().manifest
    made = added_tag.write(
        models.directory(models.YAMNET), base, "Rain", "Garden", np.zeros(1025, np.float32), 10, tmp_path
    )
    assert [tag.name for tag in made.tags] == [tag.name for tag in base.tags]
    assert next(tag for tag in made.tags if tag.name == "Rain") == ModelTag("Rain", "Garden", (), 0.5, 0, 10)
    assert (tmp_path / "NOTICE").is_file()
    assert (tmp_path / background.ATTRIBUTION).is_file()


def warble(number: float) -> Floats:
    """Return two seconds; the second has a tone that goes up and down ten times a second."""
    random = np.random.default_rng(int(2 * number))
    seconds = np.arange(2 * RATE) / RATE
    tone = np.sin(2 * np.pi * (900 + 50 * number) * seconds + 20 * np.sin(2 * np.pi * 10 * seconds))
    return (np.where(seconds < 1, 0, 0.2 * tone) + random.normal(0, 0.003, len(seconds))).astype(np.float32)


def hiss(number: int) -> Floats:
    return np.random.default_rng(number).normal(0, 0.1, 2 * RATE).astype(np.float32)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part_of_background: None) -> typer.Typer:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    for folder, sound, count in (("with", warble, 11), ("without", hiss, 2)):
        (tmp_path / folder).mkdir()
        for number in range(count):
            soundfile.write(tmp_path / folder / f"{number:02}.wav", sound(number), RATE)
    (tmp_path / "with" / "readme.txt").write_text("recorded in the yard")
    (tmp_path / "with" / "05.wav").write_bytes(b"RIFF....WAVE")
    return app_of(models_command, train_tag)


@pytest.mark.parametrize(("model", "kinds"), [("yamnet", [""]), ("yamnet-ced", [" in streams", " in recordings"])])
def test_train_tag_command_adds_model(app: typer.Typer, tmp_path: Path, model: str, kinds: list[str]) -> None:
    folders = ["--positives", str(tmp_path / "with"), "--negatives", str(tmp_path / "without")]
    arguments = ["models", "train-tag", "Warble", "--model", model, *folders]
    result = invoked(app, *arguments, "--use")
    for kind in kinds:
        assert f"Warble{kind}: learnt from 10 recordings" in result.stdout
    assert "with: 2 files skipped" in result.stderr
    assert "minutes of your negatives" in result.stdout
    assert "readme.txt" in result.stderr
    registry = Registry(tmp_path / "data")
    chosen = registry.current_id()
    assert chosen is not None
    assert chosen in result.stdout
    manifest = registry.manifest_of(chosen)
    assert isinstance(manifest, Manifest)
    assert manifest.tags[-1].name == "Warble"
    loaded = OnnxSoundEngine(registry.find(chosen))
    silence, _, sound = reported(loaded, warble(5.5))
    assert (silence, sound) == (False, True)
    assert reported(loaded, hiss(9)) == [False] * 3

    if manifest.second is not None:
        assert reported(loaded, warble(6.5), recording=True) == [True] * 3
        bundled = manifests.read(models.directory()).second
        assert bundled is not None
        assert manifest.second.gate <= bundled.gate
        assert (manifest.tags[-1].head, manifest.second.tags[-1].classes) == (None, ())

    # The name is taken now. Equal recordings give equal models.
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, BadRequest)
    assert str(refused.exception) == "the model knows a sound Warble already: learn it again with --replace"
    assert f"added {chosen}" in invoked(app, *arguments, "--replace").stdout


def reported(loaded: OnnxSoundEngine, samples: Floats, recording: bool = False) -> list[bool]:
    analysis = Analysis(loaded, SESSIONS, RATE, recording=recording)
    packed = analysis.feed(samples) + analysis.finish()
    windows = np.frombuffer(packed, np.uint8).reshape(-1, len(loaded.manifest.tags))
    return [bool(stored >= ZERO) for stored in windows[:, -1]]


def test_train_tag_command_rejects_bad_folders(app: typer.Typer, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for folder, fault in ((few, "0 recordings of the sound are too few"), (tmp_path / "no", "no: is not a directory")):
        result = CliRunner().invoke(app, ["models", "train-tag", "Warble", "--positives", str(folder)])
        assert fault in str(result.exception)
    assert not (tmp_path / "data" / "models" / "current").exists()


def test_missing_background_requires_negatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "read", lambda manifest, context: None)
    with pytest.raises(BadRequest, match="give --negatives"):
        gather(engine().manifest, [])
