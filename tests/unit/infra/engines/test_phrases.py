"""Every tag of the bundled models has words of its own."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import infra.models
from infra.engines.phrases import PLACES, phrase, table

MODELS = Path(infra.models.__file__).parent


def test_every_tag_of_the_bundled_models_is_in_the_table() -> None:
    with (MODELS / "yamnet" / "tags.csv").open(encoding="utf-8") as file:
        tags = {row["tag"] for row in csv.DictReader(file)}
    tags |= {tag["name"] for tag in json.loads((MODELS / "sed_mini" / "manifest.json").read_bytes())["tags"]}
    assert tags - table().keys() == set()


def test_the_table_agrees_with_itself() -> None:
    for known in table().values():
        assert known.place in PLACES
        assert set(known.general) <= table().keys() - {known.tag}
        assert known.clause
        assert known.noun


def test_a_tag_that_is_not_in_the_table_is_spoken_of_by_its_name() -> None:
    assert phrase("Steel_drum").clause == "steel drum is heard"
    assert phrase("Robot_speech").kind == "voice"
