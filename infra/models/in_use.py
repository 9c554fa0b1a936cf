"""The model that the service uses, and its replacement at run time."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from infra import models
from infra.models import manifests
from infra.models.registry import Registry, bundled
from streams.models import manifest
from streams.models.loaded_models import LoadedModels, SoundModel
from streams.models.manifest import Manifest
from streams.processes.zygote_process import Zygote
from topics.errors import EarshotError, EngineError, Unavailable

log = structlog.get_logger("earshot")

#: The longest time after `earshot models use` until new sessions get the model, plus the time to load it.
WATCH_SECONDS: Final = 1.0


class ModelInUse:
    """The model from the settings, which is fixed, or the one in use in the registry, which may change at any time."""

    def __init__(self, data: Path, setting: str | None, zygote: Zygote) -> None:
        """The zygote, from which workers are forked, loads the models."""
        self._zygote = zygote
        self._registry = Registry(data)
        self._setting = setting
        self._model = setting or ""
        #: When the registry chose the model that was tried last.
        self._chosen_at = 0

    def open(self) -> LoadedModels:
        """Load the first model; blocks.

        Raises:
            EngineError: it does not exist, or cannot be used.
        """
        self._chosen_at = self._registry.chosen_at()
        self._model = self._registry.model_for_new_sessions(self._setting)
        fault = None
        try:
            current = self._load(self._model)
        except EngineError as error:
            # If the weights of the default's second model are damaged, its first model works alone.
            if self._model != str(models.directory()):
                raise
            fault = str(error)
            log.error("model.refused", model=self._model, error=fault, in_use=models.YAMNET)
            current = self._load(str(models.directory(models.YAMNET)))
        return LoadedModels(current, self._load, self._registry.manifest_of, _choices(current.manifest), fault)

    def preload(self) -> None:
        """Load the model for the zygotes that are forked from this one; blocks. `open` reports a failure."""
        with suppress(EarshotError, OSError, ValueError):
            self._zygote.load(self._registry.find(self._registry.model_for_new_sessions(self._setting)))

    async def watch(self, loaded: LoadedModels) -> None:
        """Follow the registry: switch to each newly chosen model; keep the last one if the new one is unusable."""
        refused = ""
        while self._setting is None:
            await asyncio.sleep(WATCH_SECONDS)
            chosen_at = self._chosen_at
            try:
                chosen_at = await asyncio.to_thread(self._registry.chosen_at)
                if chosen_at == self._chosen_at:
                    continue
                self._model = await asyncio.to_thread(self._registry.model_for_new_sessions, None)
                model = await asyncio.to_thread(self._load, self._model)
            except (EarshotError, OSError, ValueError) as error:
                if refused != (refused := str(error)):
                    in_use = loaded.current.manifest.model_id
                    log.error("model.refused", model=self._model, error=refused, in_use=in_use)
                # Such failures may pass. An unusable model is tried again once it is chosen again.
                if isinstance(error, (Unavailable, OSError)):
                    continue
            else:
                # In a thread, because another model may be loading meanwhile.
                await asyncio.to_thread(loaded.use, model)
                log.info("model.used", model=model.manifest.model_id)
            refused, self._chosen_at = "", chosen_at

    def _load(self, model: str) -> SoundModel:
        directory = self._registry.find(model)
        self._zygote.load(directory)
        loaded = SoundModel(manifest.read(directory))
        # Keeps its windows readable when an upgrade brings another model of that name.
        self._registry.remember(loaded.manifest)
        return loaded


def _choices(loaded: Manifest) -> Iterator[Manifest]:
    """Yield the bundled models that sessions may ask for, except damaged ones, which could never score."""
    for entry in bundled():
        if isinstance(entry.manifest, Manifest):
            try:
                if entry.manifest != loaded:
                    manifests.check_files(entry.directory, entry.manifest)
            except EngineError as error:
                log.error("model.damaged", model=entry.model_id, error=str(error))
            else:
                yield entry.manifest
