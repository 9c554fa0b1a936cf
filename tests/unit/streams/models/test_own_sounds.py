"""Own sounds: the data behind a window's scores, and the sounds that fit a model."""

import numpy as np
import pytest

from streams.audio.analysis import NOTHING, Analysis
from streams.models.loaded_models import LoadedModels, SoundModel
from streams.models.own_sounds import LARGEST, OwnColumns, dequantise, own_columns, quantise, score, widths
from tests.audio import noise
from tests.unit.streams.audio.engines import TAGS, Fingerprint, Pair
from topics.geometry import SESSIONS
from topics.hearing import Hearing, OwnSound, OwnSounds, parts_of

DIMENSION = TAGS
GRAPH = "0" * 64
HEADS = np.random.default_rng(1).normal(size=(2, 2, DIMENSION + 1)).astype("<f4")
HEARING = Hearing(("Kettle", "Lathe"), HEADS.tobytes(), keeps=True)


def test_embedding_is_quantised_to_255_steps() -> None:
    embedding = np.linspace(-2 * LARGEST, 2 * LARGEST, 401).astype(np.float32)
    again = dequantise(quantise(embedding))
    inside = np.abs(embedding) <= LARGEST
    assert np.abs(again - embedding)[inside].max() <= LARGEST / 254 + 1e-6
    assert np.abs(again).max() == pytest.approx(LARGEST)


def test_embedding_scores_same_alone_as_in_batch() -> None:
    stored = np.random.default_rng(2).integers(-127, 128, (1000, 192)).astype(np.int8)
    head = np.random.default_rng(3).normal(size=193).astype(np.float32)
    together = score(head, stored)
    assert [float(score(head, one[None])[0]) for one in stored] == together.tolist()
    assert score(head, np.zeros((2, 192), np.int8)).tolist() == [0, 0]


@pytest.mark.parametrize("recording", [False, True])
def test_columns_are_scores_then_embedding(recording: bool) -> None:
    columns = OwnColumns(HEARING, DIMENSION, recording)
    embedding = np.linspace(-3, 3, DIMENSION).astype(np.float32)
    row = columns.of(embedding)
    stored = quantise(embedding)
    assert row[:2].tolist() == [float(score(head, stored[None])[0]) for head in HEADS[int(recording)]]
    assert row[2:].astype(np.int8).tolist() == stored.tolist()
    assert columns.of(None).tolist() == [0] * (2 + DIMENSION)


def test_single_model_has_no_own_columns() -> None:
    manifest = Fingerprint().manifest
    assert own_columns(manifest, HEARING, recording=False) is None
    assert widths(manifest, NOTHING) == (TAGS, 0)


@pytest.mark.parametrize("recording", [False, True])
def test_stored_embedding_matches_scores_for_any_chunking(recording: bool) -> None:
    samples = noise(7 * 16_000)

    def rows(*cuts: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        analysis = Analysis(Pair(), SESSIONS, 16_000, recording=recording, hearing=HEARING)
        packed = b"".join([analysis.feed(piece) for piece in np.split(samples, cuts)]) + analysis.finish()
        return np.frombuffer(packed, np.uint8).reshape(-1, TAGS + 2 + DIMENSION)

    whole = rows()
    assert np.array_equal(whole, rows(11, 16_000, 40_001))
    plain = Analysis(Pair(), SESSIONS, 16_000, recording=recording)
    tags = plain.feed(samples) + plain.finish()
    assert whole[:, :TAGS].tobytes() == tags
    for row in whole:
        stored = row[-DIMENSION:].view(np.int8)
        assert stored.any()
        for head, byte in zip(HEADS[int(recording)], row[TAGS : TAGS + 2], strict=True):
            assert (float(score(head, stored[None])[0]) >= 0.5) == (byte >= 128)


def test_sounds_apply_only_to_model_they_were_learnt_on() -> None:
    def sound(name: str, graph: str) -> OwnSound:
        return OwnSound(name, graph, bytes([1]) * 4, bytes([2]) * 4)

    own = OwnSounds(True, (sound("Kettle", GRAPH), sound("Lathe", "1" * 64)))
    models = LoadedModels(SoundModel(Pair().manifest))
    model, hearing = models.hearing(None, own)
    assert hearing == Hearing(("Kettle",), bytes([1] * 4 + [2] * 4), keeps=True)
    assert parts_of(model) == (Pair().manifest.model_id, ("Kettle",))
    assert models.tags(model) == (*models.tags(Pair().manifest.model_id), "Kettle")
    assert models.engine(model) is models.current
    alone = LoadedModels(SoundModel(Fingerprint().manifest))
    assert alone.hearing(None, own) == (Fingerprint().manifest.model_id, NOTHING)
