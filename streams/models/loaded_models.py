"""The workers' models: the one for new sessions, and those of older sessions."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from streams.models.manifest import Manifest
from topics.alarms.tags import Classes, classes_of
from topics.choices import Choices
from topics.errors import BadRequest, EngineError, ServiceError
from topics.hearing import Hearing, OwnSound, model_with, parts_of

#: Models that stay loaded besides the current one; an analysis keeps its own model loaded anyway.
MAX_OTHERS: Final = 3


class Model(Protocol):
    """A loaded model: `SoundModel`, or an engine of this process."""

    @property
    def manifest(self) -> Manifest: ...


class SoundModel(NamedTuple):
    """A model that the workers have loaded."""

    manifest: Manifest


def _load_none(model: str) -> Model:
    raise EngineError(f"the model {model} is not here")


class LoadedModels:
    """The sound-event models of a node. Any thread.

    A session is scored from its first window to its last by the model that was current when it was opened. So the
    current model can change at any time.
    """

    def __init__(
        self,
        current: Model,
        load: Callable[[str], Model] = _load_none,
        find_manifest: Callable[[str], Manifest | None] = lambda model: None,
        choices: Iterable[Manifest] = (),
        fault: str | None = None,
    ) -> None:
        """Begin with `current`; `load` and `find_manifest` take the id of another model, possibly a removed one.

        Sessions may request `choices` by name. `fault` is the reason why `current` stands in for another model.
        """
        self.current = current
        self._load = load
        self._find_manifest = find_manifest
        self.fault = fault
        self._choices = {manifest.name: manifest.model_id for manifest in choices}
        self._loading = threading.Lock()
        self._others: OrderedDict[str, Model] = OrderedDict()
        self._tags = {current.manifest.model_id: _tag_names(current.manifest)}
        self._classes: dict[str, Classes] = {}

    @property
    def loaded(self) -> tuple[str, ...]:
        """The ids of the models in memory as known here, the current one first."""
        current = self.current.manifest.model_id
        return current, *(model for model in list(self._others) if model != current)

    def hearing(self, name: str | None, own: Sequence[OwnSound], choices: Choices) -> tuple[str, Hearing]:
        """Return the model id for something new, including matching own sounds, and its `Hearing`.

        The model is the current one, or the one a client requests by name. Own sounds match the second model from
        which they were learnt.

        Raises:
            BadRequest: there is no such model, or it cannot be used.
        """
        model = self.current.manifest.model_id if name is None else self._named(name)
        stands_in = name is None and self.fault is not None
        graph = self.graph(model)
        if graph is None:
            return model, Hearing(choices=choices, stands_in=stands_in)
        fitting = [sound for sound in own if sound.graph == graph]
        names = tuple(sound.name for sound in fitting)
        heads = b"".join([getattr(sound, kind) for kind in ("stream", "recording") for sound in fitting])
        return model_with(model, names), Hearing(names, heads, choices, stands_in)

    def graph(self, model: str) -> str | None:
        """Return the SHA-256 of the graph that computes a model's contexts; None if no sounds are learnt on it.

        Raises:
            ServiceError: the model is unknown.
        """
        second = self._manifest(parts_of(model)[0]).second
        return second.graph.sha256 if second is not None and second.dimension else None

    def use(self, engine: Model) -> None:
        """Use a loaded model for new sessions; keep the last one for the sessions that began with it."""
        before, self.current, self.fault = self.current, engine, None
        with self._loading:
            self._keep(before)

    def engine(self, model: str) -> Model:
        """Return a model by its id, with or without own sounds. Blocks while loading it.

        Raises:
            EngineError: it is not here, or cannot be loaded.
        """
        current, (model, _) = self.current, parts_of(model)
        if model == current.manifest.model_id:
            return current
        with self._loading:
            engine = self._others.get(model)
            if engine is None:
                engine = self._load(model)
                if engine.manifest.model_id != model:
                    raise EngineError(f"the model {model} is not here, only {engine.manifest.model_id}")
            self._keep(engine)
        return engine

    def tags(self, model: str) -> Sequence[str]:
        """Return the tags of a model, loaded or not, in the order of its scores, own sounds last.

        Raises:
            ServiceError: the model is unknown.
        """
        model, own = parts_of(model)
        tags = self._tags.get(model)
        if tags is None:
            tags = self._tags[model] = _tag_names(self._manifest(model))
        return (*tags, *own) if own else tags

    def classes(self, model: str) -> Classes:
        """Return the classes of a model's tags (`topics.alarms.tags`).

        Raises:
            ServiceError: the model is unknown.
        """
        model, _ = parts_of(model)
        classes = self._classes.get(model)
        if classes is None:
            tags = self._manifest(model).tags
            classes = self._classes[model] = classes_of((tag.name, tag.category) for tag in tags)
        return classes

    def _named(self, name: str) -> str:
        current = self.current.manifest
        choices = {**self._choices, current.name: current.model_id}
        if name not in choices:
            raise BadRequest(f"model: {name!r} is not available, only {', '.join(sorted(choices))}")
        return choices[name]

    def _manifest(self, model: str) -> Manifest:
        current = self.current.manifest
        manifest = current if model == current.model_id else self._find_manifest(model)
        if manifest is None:
            raise ServiceError(f"these windows were scored by {model}, which is not known here")
        return manifest

    def _keep(self, engine: Model) -> None:
        model = engine.manifest.model_id
        self._others[model] = engine
        self._others.move_to_end(model)
        while len(self._others) > MAX_OTHERS:
            self._others.popitem(last=False)


def _tag_names(manifest: Manifest) -> tuple[str, ...]:
    return tuple(tag.name for tag in manifest.tags)
