"""Manifests: what is wrong with one is said in a line that names the file and the fault."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from streams.models import manifest
from streams.models.manifest import FILE, Graph, Heads, LogMel, ModelTag, Output, Waveform
from tests.unit.streams.audio.engines import YAMNET as MEL
from tests.unit.streams.models.models import MANIFEST
from topics.errors import EngineError


def refused(directory: Path, data: bytes) -> str:
    (directory / FILE).write_bytes(data)
    with pytest.raises(EngineError) as refusal:
        manifest.read(directory)
    text = str(refusal.value)
    assert text.startswith(f"{directory / FILE}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("front", [MANIFEST.input, MEL])
def test_reads_what_was_written(tmp_path: Path, front: LogMel | Waveform) -> None:
    given = msgspec.structs.replace(MANIFEST, input=front)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(given))
    assert manifest.read(tmp_path) == given


def test_names() -> None:
    given = msgspec.structs.replace(MANIFEST, graph=Graph("model.onnx", "0123456789abcdef" * 4))
    assert re.fullmatch("tiny@01234567-[0-9a-f]{6}", given.model_id)
    assert given.points == (0.5, 0.25)
    assert MEL.samples == 15_600


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
def test_what_makes_another_model(change: dict[str, object], same: bool) -> None:
    assert (msgspec.structs.replace(MANIFEST, **change).model_id == MANIFEST.model_id) is same


def test_only_what_differs_from_yamnet_is_written() -> None:
    assert len(msgspec.json.decode(msgspec.json.encode(MEL))) == 10
    other = msgspec.structs.replace(MEL, power=2)
    assert msgspec.json.decode(msgspec.json.encode(other))["power"] == 2


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"manifest.json: No such file"):
        manifest.read(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"name": 1}', b"\xff"])
def test_not_a_manifest(tmp_path: Path, data: bytes) -> None:
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
        ({"tags": (*MANIFEST.tags, MANIFEST.tags[0])}, "tag First is there twice"),
        ({"tags": (ModelTag("T", "C", (4,), 0.5),)}, "tag T needs class indices from 0 to 3"),
        ({"tags": (ModelTag("T", "C", (), 0.5),)}, "tag T needs class indices"),
        ({"tags": (ModelTag("T", "C", (0,), 1.0),)}, "tag T has point 1.0"),
    ],
)
def test_faults(tmp_path: Path, change: dict[str, object], fault: str) -> None:
    assert fault in refused(tmp_path, msgspec.json.encode(msgspec.structs.replace(MANIFEST, **change)))
