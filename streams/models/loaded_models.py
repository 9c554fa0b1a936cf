"""Models side by side: one for the sessions that begin, others for those that began with them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from streams.models.manifest import Manifest
from streams.models.protocol import SoundEngine
from topics.errors import EngineError, ServiceError

#: Models that stay loaded besides the one in use; analyses keep theirs alive anyway.
MAX_OTHERS: Final = 3


def _nothing_else(model: str) -> SoundEngine:
    raise EngineError(f"the model {model} is not here")


def _unknown(model: str) -> Manifest | None:
    return None


class LoadedModels:
    """The models of a node; any thread may ask.

    A session is scored by one model from its first window to its last: the one that was in use when it was opened.
    So another model can be taken into use at any time, and no session sees a window of another kind.
    """

    def __init__(
        self,
        current: SoundEngine,
        load: Callable[[str], SoundEngine] = _nothing_else,
        known: Callable[[str], Manifest | None] = _unknown,
    ) -> None:
        """Begin with `current`; `load` and `known` find other models, and manifests of models gone, by their id."""
        self._current = current
        self._load = load
        self._known = known
        self._loading = threading.Lock()
        self._others: OrderedDict[str, SoundEngine] = OrderedDict()
        self._tags = {current.manifest.model_id: _tags(current.manifest)}

    @property
    def current(self) -> SoundEngine:
        """The model for new sessions."""
        return self._current

    def use(self, engine: SoundEngine) -> None:
        """Take a loaded model into use for new sessions; the last one stays for the sessions that it began."""
        before, self._current = self._current, engine
        with self._loading:
            self._remember(before)

    def engine(self, model: str) -> SoundEngine:
        """Return a model by its id; blocks while it is loaded.

        Raises:
            EngineError: it is not here, or cannot be loaded.
        """
        current = self._current
        if model == current.manifest.model_id:
            return current
        with self._loading:
            found = self._others.get(model)
            if found is None:
                found = self._load(model)
                if found.manifest.model_id != model:
                    raise EngineError(f"the model {model} is not here, only {found.manifest.model_id}")
            self._remember(found)
        return found

    def tags(self, model: str) -> Sequence[str]:
        """Return the tags of a model in the order of its scores, loaded or not.

        Raises:
            ServiceError: nothing is known of the model.
        """
        tags = self._tags.get(model)
        if tags is None:
            current = self._current.manifest
            manifest = current if model == current.model_id else self._known(model)
            if manifest is None:
                raise ServiceError(f"these windows were scored by {model}, which is not known here")
            tags = self._tags[model] = _tags(manifest)
        return tags

    def _remember(self, engine: SoundEngine) -> None:
        model = engine.manifest.model_id
        self._others[model] = engine
        self._others.move_to_end(model)
        while len(self._others) > MAX_OTHERS:
            self._others.popitem(last=False)


def _tags(manifest: Manifest) -> tuple[str, ...]:
    return tuple(tag.name for tag in manifest.tags)
