"""The model card, and that docs/models.md has the one of the models that ship."""

from __future__ import annotations

import msgspec

from infra.lab.evaluation.bundled import bundled_manifests
from infra.lab.evaluation.card import model_card
from tests.conftest import ROOT
from tests.unit.infra.lab.evaluation.engines import Levels

MANIFEST = Levels(0.5, 0.5).manifest


def test_figures_have_names_and_an_order() -> None:
    figures = {
        "window_ms_ratio": 0.25,
        "clip_recall": 0.7866,
        "scenes_false_windows_median": 0.0192,
        "odd_share": 0.5,
        "speech_false_windows": 0.1,
    }
    ours = msgspec.structs.replace(MANIFEST, name="ours", figures=figures)
    other = msgspec.structs.replace(MANIFEST, name="other", figures={"false_events_per_minute": 5.1345})
    assert model_card([ours, other]).splitlines() == [
        "| sound events | `ours` | `other` |",
        "| --- | ---: | ---: |",
        "| licence | CC0-1.0 | CC0-1.0 |",
        "| tags, and those whose point rests on clips of their sound | 2, 0 | 2, 0 |",
        "| clips whose sound is found | 78.7 % |  |",
        "| false events a minute, clips of all sounds |  | 5.13 |",
        "| windows with a false tag, scenes, median of three | 1.9 % |  |",
        "| time a window, in units of the default model | 0.25 |  |",
        "| odd share | 50.0 % |  |",
    ]


def test_no_models() -> None:
    assert model_card([]) == ""


def test_the_page_of_models_has_the_card() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert text.count("<!-- model card -->") == 1, "mark the place with <!-- model card --> and <!-- /model card -->"
    _, _, rest = text.partition("<!-- model card -->\n")
    inside, _, _ = rest.partition("<!-- /model card -->")
    assert inside.strip("\n") == model_card(bundled_manifests()), "run earshot evaluate --card"


def test_the_default_model_comes_first_and_has_figures() -> None:
    first = bundled_manifests()[0]
    assert first.name == "yamnet"
    for name in ("ten_class_clip_accuracy", "clip_recall", "false_events_per_minute", "scenes_false_windows"):
        assert name in first.figures
