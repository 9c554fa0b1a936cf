"""The background that ships: it fits the bundled model, and rounding tells no sounds apart."""

from __future__ import annotations

import lzma
from pathlib import Path

import msgspec
import numpy as np
import pytest

from infra import models
from infra.lab.training import background
from streams.models import manifest
from topics.errors import EngineError

YAMNET = manifest.read(models.directory())


def test_what_ships() -> None:
    found = background.read(YAMNET)
    assert found is not None
    assert found.embeddings.shape[1] == 1024
    assert len(found.embeddings) == len(found.recording) == len(found.source)
    assert 0 <= found.embeddings.min() <= found.embeddings.max() <= background.LARGEST
    assert np.unique(found.recording).tolist() == list(range(len(found.labels)))
    assert (np.diff(found.recording) >= 0).all()
    assert "speech" in found.labels
    assert np.bincount(found.recording).max() <= background.MOST
    # A recording has one source.
    assert len(np.unique(np.stack((found.recording, found.source)), axis=1).T) == len(found.labels)
    assert background.path_for(YAMNET).stat().st_size < 700_000
    credits = (background.HERE / background.ATTRIBUTION).read_text()
    assert "ESC-50" in credits
    assert "LibriSpeech" in credits


def test_another_graph_has_none() -> None:
    other = msgspec.structs.replace(YAMNET.graph, sha256="0" * 64)
    assert background.read(msgspec.structs.replace(YAMNET, graph=other)) is None


@pytest.mark.parametrize("content", [b"", b"no archive", lzma.compress(b"no array")])
def test_damaged(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(background, "HERE", tmp_path)
    background.path_for(YAMNET).write_bytes(content)
    with pytest.raises(EngineError, match=r"npy\.xz: "):
        background.read(YAMNET)


def test_rounding() -> None:
    embeddings = np.linspace(0, 7, 1_000, dtype=np.float32)[None]
    again = background.dequantise(background.quantise(embeddings))
    assert np.abs(np.sqrt(again) - np.sqrt(embeddings.clip(0, 6))).max() <= np.sqrt(6) / 126 + 1e-6
    assert np.array_equal(background.quantise(again), background.quantise(embeddings))
