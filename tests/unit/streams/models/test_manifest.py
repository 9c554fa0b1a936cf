"""Manifests: faults give one line that names the file; and several models, known and loaded."""

import re
from pathlib import Path

import msgspec
import pytest

from streams.models import manifest
from streams.models.loaded_models import MAX_OTHERS, LoadedModels
from streams.models.manifest import FILE, Graph, Heads, LogMel, ModelTag, Output, Waveform
from streams.models.protocol import SoundEngine
from tests.unit.streams.audio.engines import YAMNET as MEL
from tests.unit.streams.audio.engines import Fingerprint
from tests.unit.streams.models.models import MANIFEST
from topics.choices import Choices
from topics.errors import BadRequest, EngineError, ServiceError


def refused(directory: Path, data: bytes) -> str:
    (directory / FILE).write_bytes(data)
    with pytest.raises(EngineError) as refusal:
        manifest.read(directory)
    text = str(refusal.value)
    assert text.startswith(f"{directory / FILE}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("front", [MANIFEST.input, MEL])
def test_written_manifest_is_read_back(tmp_path: Path, front: LogMel | Waveform) -> None:
    given = msgspec.structs.replace(MANIFEST, input=front)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(given))
    assert manifest.read(tmp_path) == given


def test_model_id_and_points() -> None:
    given = msgspec.structs.replace(MANIFEST, graph=Graph("model.onnx", "0123456789abcdef" * 4))
    assert re.fullmatch("tiny@01234567-[0-9a-f]{6}", given.model_id)
    assert given.points(recording=True) == (0.5, 0.25)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"figures": {"recall": 0.5}}, True),
        ({"licence": "MIT"}, True),
        ({"tags": (msgspec.structs.replace(MANIFEST.tags[0], clips=7), MANIFEST.tags[1])}, True),
        ({"tags": (msgspec.structs.replace(MANIFEST.tags[0], point=0.6), MANIFEST.tags[1])}, False),
        ({"output": Output(activation="sigmoid")}, False),
        ({"input": MEL}, False),
        ({"name": "other"}, False),
    ],
)
def test_model_id_depends_on_scoring_fields(change: dict[str, object], same: bool) -> None:
    assert (msgspec.structs.replace(MANIFEST, **change).model_id == MANIFEST.model_id) is same


def test_yamnet_defaults_are_not_written() -> None:
    assert len(msgspec.json.decode(msgspec.json.encode(MEL))) == 10
    other = msgspec.structs.replace(MEL, power=2)
    assert msgspec.json.decode(msgspec.json.encode(other))["power"] == 2


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"name": 1}', b"\xff"])
def test_missing_or_malformed_manifest_is_rejected(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(EngineError, match=r"manifest.json: No such file"):
        manifest.read(tmp_path)
    refused(tmp_path, data)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"input": Waveform(999, 400)}, "sample_rate is 999"),
        ({"input": Waveform(1000, 1001)}, "a patch covers 1001 samples"),
        ({"input": msgspec.structs.replace(MEL, hop=0)}, "must be positive"),
        ({"input": msgspec.structs.replace(MEL, fft=500)}, "fft is 500, expected a power of two"),
        ({"input": msgspec.structs.replace(MEL, fft=256)}, "at least the window"),
        ({"input": msgspec.structs.replace(MEL, high_hz=8001.0)}, "low_hz and high_hz are 125.0 and 8001.0"),
        ({"input": msgspec.structs.replace(MEL, offset=0.0)}, "offset and std are 0.0 and 1.0"),
        ({"input": msgspec.structs.replace(MEL, std=0.0)}, "offset and std are 0.001 and 0.0"),
        ({"input": msgspec.structs.replace(MEL, pre_emphasis=1.0)}, "pre_emphasis is 1.0"),
        ({"input": msgspec.structs.replace(MEL, power=3)}, "power"),
        ({"heads": Heads("heads.npy", "0" * 64)}, "output.embedding names no output"),
        ({"graph": Graph("model.onnx", "ABC")}, "graph.sha256 is not"),
        ({"graph": Graph("../model.onnx", "0" * 64)}, "expected a file beside the manifest"),
        ({"tags": ()}, "it has no tags"),
        ({"tags": (*MANIFEST.tags, MANIFEST.tags[0])}, "tag First appears twice"),
        ({"tags": (ModelTag("T", "C", (4,), 0.5),)}, "tag T needs class indices from 0 to 3"),
        ({"tags": (ModelTag("T", "C", (), 0.5),)}, "tag T needs class indices"),
        ({"tags": (ModelTag("T", "C", (0,), 1.0),)}, "tag T has point 1.0"),
    ],
)
def test_invalid_fields_are_rejected(tmp_path: Path, change: dict[str, object], fault: str) -> None:
    assert fault in refused(tmp_path, msgspec.json.encode(msgspec.structs.replace(MANIFEST, **change)))


# --- several models: loaded, known and missing ones ----------------------------------------------------------------


def named(name: str) -> Fingerprint:
    return Fingerprint(name=name)


class Store:
    """Loadable models; records loads."""

    def __init__(self, *names: str) -> None:
        self.models: dict[str, SoundEngine] = {engine.manifest.model_id: engine for engine in map(named, names)}
        self.loads: list[str] = []

    def __call__(self, model: str) -> SoundEngine:
        self.loads.append(model)
        if model not in self.models:
            raise EngineError(f"there is no model {model}")
        return self.models[model]


def test_current_and_previous_models_are_not_reloaded() -> None:
    before, after, store = named("a"), named("b"), Store()
    loaded = LoadedModels(before, store)
    assert loaded.current is loaded.engine(before.manifest.model_id) is before
    loaded.use(after)
    assert loaded.current is loaded.engine(after.manifest.model_id) is after
    assert loaded.engine(before.manifest.model_id) is before
    assert store.loads == []


def test_other_models_are_loaded_once_and_oldest_are_evicted() -> None:
    names = [f"m{number}" for number in range(MAX_OTHERS + 1)]
    store = Store(*names)
    loaded = LoadedModels(named("a"), store)
    ids = list(store.models)
    for model in [*ids[:-1], *ids[:-1]]:
        assert loaded.engine(model) is store.models[model]
    assert store.loads == ids[:-1]
    loaded.engine(ids[-1])
    loaded.engine(ids[0])
    assert store.loads == [*ids, ids[0]]


def test_session_may_choose_model_by_name() -> None:
    current, other = named("a").manifest, named("b").manifest
    loaded = LoadedModels(named("a"), Store(), {other.model_id: other}.get, [other])
    asked = [loaded.hearing(name, (), Choices())[0] for name in ("a", "b", None)]
    assert asked == [current.model_id, other.model_id, current.model_id]
    with pytest.raises(BadRequest, match="model: 'c' is not available, only a, b"):
        loaded.hearing("c", (), Choices())


def test_missing_model_is_an_error() -> None:
    with pytest.raises(EngineError, match="the model gone@00000000-000000 is not here"):
        LoadedModels(named("a")).engine("gone@00000000-000000")
    with pytest.raises(EngineError, match="there is no model"):
        LoadedModels(named("a"), Store()).engine("gone@00000000-000000")
    other = named("b")
    with pytest.raises(EngineError, match=rf"gone@1-2 is not here, only {other.manifest.model_id}"):
        LoadedModels(named("a"), lambda model: other).engine("gone@1-2")


def test_tags_of_known_but_unloaded_models() -> None:
    current, after, old = named("a").manifest, named("b"), named("old").manifest
    loaded = LoadedModels(named("a"), Store(), {old.model_id: old}.get)
    loaded.use(after)
    for known in (current, after.manifest, old):
        assert list(loaded.tags(known.model_id)) == [tag.name for tag in known.tags]
    with pytest.raises(ServiceError, match="scored by gone@1-2, which is not known here"):
        loaded.tags("gone@1-2")
