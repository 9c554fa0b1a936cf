"""Overlap: the effect of second voices on errors, and the bundled network's figures."""

from types import SimpleNamespace

import numpy as np
import pytest

from infra import models
from infra.lab.evaluation import overlap
from infra.lab.evaluation.overlap import Recording
from streams.models.protocol import Floats
from streams.voice import loudness, overlap_manifest
from streams.voice.diarization import DiarizationTurn
from streams.voice.overlap import DiarizationOverlap
from tests.unit.streams.voice.tones import Ear, Tones, talk


@pytest.mark.parametrize(("true_s", "right_s"), [(2.0, 1.0), (1.0, 1.0), (0.4, 0.4), (0.0, 0.0)])
def test_marked_overlaps_change_missed_and_false_alarm_time(
    monkeypatch: pytest.MonkeyPatch, true_s: float, right_s: float
) -> None:
    samples = talk((0, 4.0), (1, 4.0))
    reference = (DiarizationTurn(0.0, 4.0, 0), DiarizationTurn(4.0 - true_s, 8.0, 1))
    marked = [DiarizationOverlap(3.0, 4.0, 0, 1)]

    def found(blocks: list[Floats], detector: object, turns: list[DiarizationTurn]) -> list[DiarizationOverlap]:
        assert np.array_equal(blocks[0], samples)
        return marked

    monkeypatch.setattr(overlap, "find_overlaps", found)
    monkeypatch.setattr(loudness, "levelled", lambda heard: heard)
    recordings = [Recording(samples, reference)] * 2
    errors = overlap.overlap_errors(recordings, Tones(), Ear(), SimpleNamespace(), real=False)
    assert (errors.true_s, errors.marked_s, errors.found_s) == pytest.approx((2 * true_s, 2.0, 2 * right_s), abs=0.05)
    assert errors.alone.missed_s - errors.marked.missed_s == pytest.approx(2 * right_s, abs=0.1)
    assert errors.marked.false_alarm_s - errors.alone.false_alarm_s == pytest.approx(2 - 2 * right_s, abs=0.1)


def test_bundled_network_meets_promised_figures() -> None:
    figures = overlap_manifest.read(models.directory(models.OVERLAP)).figures
    assert min(figures["overlap_found"], figures["overlap_precision"]) >= 0.65
    for kind in ("talks", "conversations", "calls"):
        assert figures[f"diarization_error_{kind}_marked"] <= figures[f"diarization_error_{kind}"]
    assert figures["diarization_error_meetings_marked"] <= 0.9 * figures["diarization_error_meetings"]
