"""Naming registered speakers and refusing others: against the definition, and the bundled model."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from infra import models
from infra.lab.evaluation import identification
from infra.lab.evaluation.identification import BestMatches, draw_matches, evaluate_identification
from infra.lab.evaluation.utterances import Utterance
from streams.voice import manifest
from streams.voice.manifest import REGISTERED, IdentificationSettings
from streams.voice.speaker_engine import OnnxSpeakerEngine
from tests.recordings import SPEECH, rows


@pytest.mark.parametrize("count", [10, 13])
def test_a_draw_registers_some_and_asks_for_them_and_ten_others(count: int) -> None:
    scores = np.random.default_rng(0).random((25, 25)).astype(np.float32)
    known, right, unknown = [], [], []
    order = np.random.default_rng(7).permuted(np.tile(np.arange(25), (4, 1)), axis=1)
    for drawn in order.tolist():
        registered, others = drawn[:count], drawn[count : count + 10]
        for reader in registered:
            best = max(registered, key=lambda name: scores[reader, name])
            known.append(scores[reader, best])
            right.append(best == reader)
        unknown += [max(scores[reader, name] for name in registered) for reader in others]
    found = draw_matches(scores, np.random.default_rng(7), count=4, registered=count)
    assert found.known.tolist() == known
    assert found.right.tolist() == right
    assert found.unknown.tolist() == unknown


def matches(known: list[float], right: list[bool], unknown: list[float]) -> BestMatches:
    return BestMatches(np.array(known, np.float32), np.array(right), np.array(unknown, np.float32))


def test_figures_are_shares_of_those_asked_for() -> None:
    plain = matches([0.9, 0.8, 0.7, 0.3], [True, True, False, True], [0.1, 0.2, 0.3, 0.75])
    cross = matches([0.9, 0.2], [True, False], [0.1, 0.9])
    assert identification.identification_figures(plain, cross, 0.5) == {
        "eer_open_10": 0.25,
        "identified_10": 0.75,
        "identified_10_open": 0.5,
        "refused_10": 0.75,
        "identified_10_cross": 0.5,
        "identified_10_open_cross": 0.5,
        "refused_10_cross": 0.5,
    }
    assert identification.open_set_error(plain + plain) == identification.open_set_error(plain)


def test_a_fold_is_judged_at_the_threshold_of_the_others() -> None:
    low, high = matches([0.5], [True], [0.4]), matches([0.9], [True], [0.8])
    threshold, found = identification.cross_checked_figures([(low, low), (high, high)])
    assert threshold == pytest.approx(0.6)
    # At 0.8 the reader of the first fold is missed, and at 0.4 the stranger of the second is named.
    assert (found["identified_10_open"], found["refused_10"], found["eer_open_10"]) == (0.5, 0.5, 0.0)


def test_the_threshold_grows_with_each_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    scores = (rng.normal(0.1, 0.1, (400, 400)) + np.diag(rng.normal(0.5, 0.1, 400))).astype(np.float32)
    monkeypatch.setattr(identification, "_readers", lambda *given: [])
    monkeypatch.setattr(identification, "_scores", lambda *given: scores)
    growth = identification.threshold_growth(OnnxSpeakerEngine(models.directory(models.SPEAKERS)), SPEECH)
    at = {n: identification.accept_point(draw_matches(scores, np.random.default_rng(2), 500, n)) for n in (10, 20, 40)}
    assert growth == pytest.approx((at[40] - at[10]) / 2, abs=0.005)
    assert at[20] == pytest.approx(at[10] + growth, abs=0.01)
    assert growth > 0.01


@pytest.mark.parametrize("at_end", [True, False])
def test_no_sample_is_in_two_pieces(at_end: bool) -> None:
    read = Utterance("a", "F", np.arange(11.5 * 16_000, dtype=np.float32))
    registered, asked = identification._split_utterance(read, at_end)
    assert [len(piece) for piece in (*registered, asked)] == [40_000, 40_000, 40_000, 64_000]
    assert len(np.unique(np.concatenate((*registered, asked)))) == len(read.samples)


def test_the_bundled_models_figures_keep_what_is_promised() -> None:
    """They were measured on readers that nets of a cross-check had not seen."""
    figures = manifest.read(models.directory(models.SPEAKERS)).figures
    assert figures["identified_10_open"] >= 0.95
    assert figures["refused_10"] >= 0.99


@pytest.mark.slow
def test_the_bundled_model_names_readers_and_refuses_others() -> None:
    """It was trained on these readers: this proves the model and its threshold unbroken, not how good they are."""
    readers = [row["speaker"] for row in rows(SPEECH / "utterances.csv") if float(row["seconds"]) > 11.5]
    engine = OnnxSpeakerEngine(models.directory(models.SPEAKERS))
    plain, cross = evaluate_identification(engine, SPEECH, readers[: 2 * REGISTERED])
    found = identification.identification_figures(plain, cross, engine.manifest.identification_settings.threshold)
    assert found["identified_10"] == 1.0
    assert found["identified_10_open"] >= 0.95
    assert found["refused_10"] >= 0.97
    with pytest.raises(ValueError, match=r"19 readers have 11\.5 s, 20 are needed"):
        evaluate_identification(engine, SPEECH, readers[: 2 * REGISTERED - 1])


def test_a_threshold_for_identification_is_optional_and_checked() -> None:
    known = msgspec.structs.replace(manifest.read(models.directory(models.SPEAKERS)), identification=None)
    assert known.identification_settings == IdentificationSettings(known.threshold, 0.0)
    assert list(manifest.faults(known)) == []
    known = msgspec.structs.replace(known, identification=IdentificationSettings(1.2, -0.1))
    assert list(manifest.faults(known)) == [
        "identification.threshold is 1.2, expected a cosine between -1 and 1",
        "identification.per_doubling is -0.1, expected 0 to 1",
    ]
