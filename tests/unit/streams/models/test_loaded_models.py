"""Models side by side: what is loaded, what is known, and what happens when one is not here."""

from __future__ import annotations

import pytest

from streams.models.loaded_models import MAX_OTHERS, LoadedModels
from streams.models.protocol import SoundEngine
from tests.unit.streams.audio.engines import Fingerprint
from topics.errors import EngineError, ServiceError


def named(name: str) -> Fingerprint:
    return Fingerprint(name=name)


class Store:
    """Models that can be loaded; remembers what was."""

    def __init__(self, *names: str) -> None:
        self.models: dict[str, SoundEngine] = {engine.manifest.model_id: engine for engine in map(named, names)}
        self.loads: list[str] = []

    def __call__(self, model: str) -> SoundEngine:
        self.loads.append(model)
        if model not in self.models:
            raise EngineError(f"there is no model {model}")
        return self.models[model]


def test_the_one_in_use_is_not_loaded_again() -> None:
    store = Store()
    current = named("a")
    loaded = LoadedModels(current, store)
    assert loaded.current is loaded.engine(current.manifest.model_id) is current
    assert store.loads == []


def test_the_one_before_stays_for_its_sessions() -> None:
    before, after, store = named("a"), named("b"), Store()
    loaded = LoadedModels(before, store)
    loaded.use(after)
    assert loaded.current is after
    assert loaded.engine(before.manifest.model_id) is before
    assert loaded.engine(after.manifest.model_id) is after
    assert store.loads == []


def test_others_are_loaded_once_and_the_oldest_leave() -> None:
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


def test_a_model_that_is_not_here() -> None:
    with pytest.raises(EngineError, match="the model gone@00000000-000000 is not here"):
        LoadedModels(named("a")).engine("gone@00000000-000000")
    with pytest.raises(EngineError, match="there is no model"):
        LoadedModels(named("a"), Store()).engine("gone@00000000-000000")


def test_another_model_in_its_place_is_refused() -> None:
    other = named("b")
    with pytest.raises(EngineError, match=rf"gone@1-2 is not here, only {other.manifest.model_id}"):
        LoadedModels(named("a"), lambda model: other).engine("gone@1-2")


def test_tags_of_models_that_are_known_but_not_loaded() -> None:
    current, old = named("a"), named("old").manifest
    loaded = LoadedModels(current, Store(), {old.model_id: old}.get)
    assert list(loaded.tags(current.manifest.model_id)) == [tag.name for tag in current.manifest.tags]
    assert list(loaded.tags(old.model_id)) == [tag.name for tag in old.tags]
    with pytest.raises(ServiceError, match="scored by gone@1-2, which is not known here"):
        loaded.tags("gone@1-2")


def test_tags_follow_the_model_in_use() -> None:
    loaded = LoadedModels(named("a"))
    after = named("b")
    loaded.use(after)
    assert list(loaded.tags(after.manifest.model_id)) == [tag.name for tag in after.manifest.tags]
