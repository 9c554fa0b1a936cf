"""The registry: added models can be found and used; faulty ones are refused in one line and change nothing."""

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partialmethod
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto

from infra import models as bundled
from infra.models import checks
from infra.models.registry import Registry
from streams.models import manifest
from streams.models.manifest import FILE, MAX_BYTES, Graph, Heads, LogMel, Manifest, Output, Waveform
from streams.models.sound_engine import OnnxSoundEngine
from streams.voice.speaker_manifest import SpeakerManifest, UtteranceInput
from tests.unit.streams.models import models
from topics.errors import EngineError

TINY = models.MANIFEST


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "data")


def written(tmp_path: Path, known: Manifest = TINY, data: bytes | None = None) -> Path:
    directory = tmp_path / "given"
    directory.mkdir(exist_ok=True)
    return models.write(directory, known, data)


def ids(registry: Registry) -> list[str]:
    return [entry.model_id for entry in registry.entries() if not entry.bundled]


def test_bundled_models_are_found(registry: Registry) -> None:
    yamnet = manifest.read(bundled.directory(bundled.YAMNET))
    assert yamnet.model_id in [entry.model_id for entry in registry.entries() if entry.bundled]
    assert registry.find("yamnet") == registry.find(yamnet.model_id) == bundled.directory(bundled.YAMNET)
    assert registry.current_id() is None
    assert registry.manifest_of(yamnet.model_id) == yamnet


@pytest.mark.slow
def test_bundled_models_pass_the_check(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "RUNS", 1)
    entries = list(registry.entries())
    bundled = {"overlap", "sed_mini", "speaker_mini", "speaker_pair", "whisper_base", "yamnet", "yamnet_ced"}
    assert {entry.directory.name for entry in entries} == bundled
    for entry in entries:
        assert entry.fault is None
        assert checks.check(entry.directory).model_id == entry.model_id


def test_speech_model_cannot_be_added_or_used(registry: Registry, tmp_path: Path) -> None:
    whisper = registry.find("whisper-base")
    with pytest.raises(EngineError, match="whisper-base is a speech-recognition model"):
        registry.add(whisper)
    with pytest.raises(EngineError, match="is not a model of sound events"):
        registry.use("whisper-base")
    copy = Path(shutil.copytree(whisper, tmp_path / "copy"))
    (copy / "vocabulary.txt").write_text("other")
    with pytest.raises(EngineError, match=r"vocabulary\.txt: not the file that the manifest was made for"):
        checks.check(copy)


def test_added_model_is_found_and_used(registry: Registry, tmp_path: Path) -> None:
    source = written(tmp_path)
    (source / "NOTICE").write_text("by somebody")
    (source / "weights.pkl").write_text("nothing of ours")
    entry = registry.add(source)
    assert entry.manifest == manifest.read(source)
    assert not entry.bundled
    assert entry.directory == registry.find("tiny") == registry.find(entry.model_id)
    assert entry.directory == tmp_path / "data" / "models" / entry.model_id
    assert sorted(path.name for path in entry.directory.iterdir()) == ["NOTICE", FILE, "model.onnx"]
    assert OnnxSoundEngine(entry.directory).manifest.model_id == entry.model_id
    assert registry.use("tiny") == entry
    assert registry.current_id() == entry.model_id
    assert registry.use("yamnet").bundled
    assert registry.current_id() == manifest.read(bundled.directory(bundled.YAMNET)).model_id


def test_newest_model_of_name_is_found(registry: Registry, tmp_path: Path) -> None:
    first = registry.add(written(tmp_path))
    tag = msgspec.structs.replace(TINY.tags[0], point=0.7)
    second = registry.add(written(tmp_path, msgspec.structs.replace(TINY, tags=(tag,))))
    assert first.model_id != second.model_id
    assert registry.find("tiny") == second.directory
    os.utime(first.directory / FILE, (2e9, 2e9))
    assert registry.find("tiny") == first.directory
    assert registry.find(second.model_id) == second.directory


def test_model_added_again_replaces_its_figures(registry: Registry, tmp_path: Path) -> None:
    first = registry.add(written(tmp_path))
    again = registry.add(written(tmp_path, msgspec.structs.replace(TINY, figures={"recall": 0.5})))
    assert (again.directory, ids(registry)) == (first.directory, [first.model_id])
    assert again.manifest is not None
    assert again.manifest.figures == {"recall": 0.5}


def test_replaced_model_is_there_at_any_time(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = registry.add(written(tmp_path))
    for number in range(3):  # A kill before each step.
        left = number

        def step(path: Path, change: Callable[[Path, Path], Path], target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("killed")
            return change(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", partialmethod(step, Path.rename))
            patch.setattr(Path, "replace", partialmethod(step, Path.replace))
            with suppress(EngineError):
                registry.add(written(tmp_path, msgspec.structs.replace(TINY, figures={"recall": number / 2})))
        [entry] = [entry for entry in registry.entries() if not entry.bundled]
        assert (entry.model_id, entry.fault) == (first.model_id, None)
        checks.check(entry.directory)


def test_changes_are_synced(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    home = tmp_path / "data" / "models"
    directory = registry.add(written(tmp_path)).directory
    inside = {path.stat().st_ino for path in (directory, *directory.iterdir())}
    assert len(inside) == 3
    assert inside < set(synced)
    assert synced[-1] == home.stat().st_ino
    registry.use("tiny")
    assert synced[-2:] == [(home / "current").stat().st_ino, home.stat().st_ino]


def test_scratch_of_killed_process_is_removed(registry: Registry, tmp_path: Path) -> None:
    home = tmp_path / "data" / "models"
    for name, seconds in (("old", 2e5), ("new", 0)):
        (home / f".scratch-{name}" / "model").mkdir(parents=True)
        os.utime(home / f".scratch-{name}", (time.time() - seconds,) * 2)
    # Another process removes this one meanwhile: it is listed, but no longer there.
    (home / ".scratch-gone").symlink_to("nowhere")
    registry.use("yamnet")
    assert registry.current_id() is not None
    assert sorted(path.name for path in home.glob(".scratch-*")) == [".scratch-gone", ".scratch-new"]


def test_unknown_name_suggests_similar_names(registry: Registry) -> None:
    with pytest.raises(EngineError, match=r"^there is no model yamet; did you mean .*yamnet"):
        registry.find("yamet")
    with pytest.raises(EngineError, match=r"^there is no model \?\?\?$"):
        registry.find("???")
    for model in ("nobody@00000000-000000", "../current"):
        assert registry.manifest_of(model) is None


def test_directory_must_be_added_before_use(registry: Registry, tmp_path: Path) -> None:
    source = written(tmp_path)
    assert registry.find(str(source)) == source
    with pytest.raises(EngineError, match="not a model of this service yet: earshot models add"):
        registry.use(str(source))


def test_unused_added_model_can_be_removed(registry: Registry, tmp_path: Path) -> None:
    entry = registry.add(written(tmp_path))
    assert isinstance(entry.manifest, Manifest)
    registry.remember(entry.manifest)
    registry.use("tiny")
    with pytest.raises(EngineError, match="is in use"):
        registry.remove("tiny")
    registry.use("yamnet")
    assert registry.remove("tiny") == entry
    assert not ids(registry)
    # Its windows can still be read.
    assert registry.manifest_of(entry.model_id) == entry.manifest
    for name in ("yamnet", str(written(tmp_path))):
        with pytest.raises(EngineError, match="was not added here"):
            registry.remove(name)


def test_upgrade_replaces_chosen_bundled_model(registry: Registry, tmp_path: Path) -> None:
    registry.use("yamnet")
    (tmp_path / "data" / "models" / "current").write_text("yamnet@00000000-000000\n")
    assert registry.current_id() == manifest.read(bundled.directory(bundled.YAMNET)).model_id
    (tmp_path / "data" / "models" / "current").write_text("gone@00000000-000000\n")
    assert registry.current_id() == "gone@00000000-000000"


def test_broken_model_is_listed_with_fault(registry: Registry, tmp_path: Path) -> None:
    entry = registry.add(written(tmp_path))
    graph = (entry.directory / "model.onnx").read_bytes()
    (entry.directory / "model.onnx").write_bytes(graph[:-1])
    with pytest.raises(EngineError, match="not the file that the manifest was made for"):
        registry.use(entry.model_id)
    (entry.directory / "model.onnx").write_bytes(graph)
    path = entry.directory / FILE
    path.write_bytes(path.read_bytes().replace(b'"point": 0.5', b'"point": 0.6'))
    assert "was changed after it was added" in str(registry.entries()[-1].fault)
    path.write_bytes(b"{")
    assert "manifest.json: " in str(registry.entries()[-1].fault)
    path.unlink()
    assert registry.entries()[-1].model_id == entry.model_id
    assert "No such file" in str(registry.entries()[-1].fault)
    with pytest.raises(EngineError, match="No such file"):
        registry.use(entry.model_id)
    assert registry.find("yamnet") == bundled.directory(bundled.YAMNET)


def test_speaker_model_can_be_added_but_not_used(registry: Registry, tmp_path: Path) -> None:
    data = models.graph(axes=("n", "time"))
    known = SpeakerManifest(
        name="voices",
        version="1",
        licence="MIT",
        source="here",
        graph=Graph("model.onnx", hashlib.sha256(data).hexdigest()),
        input=UtteranceInput(sample_rate=16_000, min_samples=8_000, max_samples=160_000),
        dimension=models.CLASSES,
        threshold=0.5,
    )
    (tmp_path / "model.onnx").write_bytes(data)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(known))
    entry = registry.add(tmp_path)
    assert (entry.manifest, registry.find("voices")) == (known, entry.directory)
    with pytest.raises(EngineError, match="is not a model of sound events, which sessions need"):
        registry.use("voices")
    (tmp_path / FILE).write_bytes(msgspec.json.encode(msgspec.structs.replace(known, dimension=5)))
    with pytest.raises(EngineError, match="but the manifest says vectors of 5"):
        registry.add(tmp_path)


def test_unwritable_data_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    with pytest.raises(EngineError, match=r"^/\S+: (Not a directory|File exists)$"):
        Registry(tmp_path / "data").add(written(tmp_path))


def external() -> bytes:
    model = onnx.load_model_from_string(models.graph())
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    where = tensor.external_data.add()
    where.key, where.value = "location", "../../../etc/passwd"
    data: bytes = model.SerializeToString()
    return data


def custom() -> bytes:
    model = onnx.load_model_from_string(models.graph())
    model.graph.node[-1].domain = "com.example"
    data: bytes = model.SerializeToString()
    return data


FAULTS = {
    "no ONNX": ({}, b"nothing", "model.onnx: is not an ONNX file"),
    "empty": ({}, b"", "model.onnx: is not an ONNX file"),
    "truncated": ({}, models.graph()[:-40], "model.onnx: is not an ONNX file, or cut short"),
    "custom operator": ({}, custom(), "has the custom operator com.example.Identity"),
    "external data": ({}, external(), r"keeps the tensor picked in another file \(../../../etc/passwd\)"),
    "too short": (
        {"input": Waveform(1000, 500)},
        models.graph(axes=("n", 500)),
        "patches of 500 samples are too short",
    ),
    "frames": (
        {"input": LogMel(1000, 90, 8, 32, 7, 32, 0.0, 500.0, 1e-3)},
        models.graph(axes=("n", 90, 8)),
        "a hop of 500 ms is not a whole number of the model's frames",
    ),
    "NaN": ({}, models.graph(operator="Sqrt"), "gives scores that are not numbers"),
    "logits": ({}, models.graph(operator="Exp"), r"gives scores from \S+ to \S+, expected 0 to 1"),
    "no licence": ({"licence": ""}, None, "licence '' is unknown"),
    "licence": ({"licence": "Apache 2"}, None, "licence 'Apache 2' is unknown, expected .* such as Apache-2.0"),
    "name": ({"name": "../tiny"}, None, r"name is '../tiny', expected a-z"),
    "capital": ({"name": "Tiny"}, None, "name is 'Tiny'"),
    "heads": (
        {"output": Output(embedding="scores"), "heads": Heads("heads.npy", "0" * 64)},
        None,
        "heads.npy: is not a plain file",
    ),
}


@pytest.mark.parametrize(("change", "data", "fault"), FAULTS.values(), ids=FAULTS)
def test_faulty_model_is_rejected_without_changes(
    registry: Registry, tmp_path: Path, change: dict[str, object], data: bytes | None, fault: str
) -> None:
    used = registry.use(registry.add(written(tmp_path), name="used").model_id).model_id
    source = written(tmp_path, msgspec.structs.replace(TINY, **change), data)
    with pytest.raises(EngineError, match=fault) as refusal:
        registry.add(source)
    assert "\n" not in str(refusal.value)
    assert ids(registry) == [used]
    assert registry.current_id() == used
    assert sorted(path.name for path in (tmp_path / "data" / "models").iterdir()) == ["current", used]


@pytest.mark.parametrize("seed", range(20))
def test_damaged_graph_gives_one_line_verdict(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    data = bytearray(models.graph(axes=("n", "time"), given=[None, None]))
    for place in draw.integers(0, len(data), 3):
        data[place] = draw.integers(256)
    assert "\n" not in verdict(written(tmp_path, data=bytes(data)))


def verdict(directory: Path) -> str:
    """Return the check's result for a model, usable or not."""
    try:
        return checks.check(directory).model_id
    except EngineError as refusal:
        return str(refusal)


def other_digest(source: Path) -> None:
    known = msgspec.structs.replace(TINY, graph=Graph("model.onnx", "0" * 64))
    (source / FILE).write_bytes(msgspec.json.encode(known))


def link(source: Path) -> None:
    (source / "model.onnx").rename(source.parent / "elsewhere")
    (source / "model.onnx").symlink_to(source.parent / "elsewhere")


def ten_gigabytes(source: Path) -> None:
    with (source / "model.onnx").open("ab") as file:
        file.truncate(10 * MAX_BYTES)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (other_digest, "not the file that the manifest was made for"),
        (link, "is not a plain file"),
        (ten_gigabytes, r"is larger than \d+ bytes"),
    ],
)
def test_file_that_differs_from_manifest_is_rejected(
    registry: Registry, tmp_path: Path, change: Callable[[Path], None], fault: str
) -> None:
    source = written(tmp_path)
    change(source)
    with pytest.raises(EngineError, match=rf"model.onnx: {fault}"):
        registry.add(source)
    assert not ids(registry)
