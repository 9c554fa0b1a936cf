"""Which model the service uses, and the change to another one while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from infra.models.registry import Registry
from streams.audio.warm import warm
from streams.models.loaded_models import LoadedModels
from streams.models.sound_engine import OnnxSoundEngine
from topics.errors import EarshotError

log = structlog.get_logger("earshot")

#: How long after `earshot models use` new sessions get the model, at most, plus the time to load it.
WATCH_SECONDS: Final = 1.0


class ModelInUse:
    """The model of the settings, which stays; else what the registry says, which may change at any time."""

    def __init__(self, data: Path, setting: str | None) -> None:
        self._registry = Registry(data)
        self._setting = setting
        self._taken = setting or ""

    def open(self) -> LoadedModels:
        """Load the model to begin with; blocks.

        Raises:
            EngineError: it is not here, or cannot be used.
        """
        self._taken = self._registry.wanted(self._setting)
        return LoadedModels(self._load(self._taken), self._load, self._registry.known)

    async def watch(self, models: LoadedModels) -> None:
        """Take models into use as they are chosen; one that cannot be used changes nothing."""
        while self._setting is None:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                model_id = await asyncio.to_thread(self._registry.wanted, None)
                if model_id == self._taken:
                    continue
                self._taken = model_id
                engine = await asyncio.to_thread(self._load, model_id)
            except (EarshotError, OSError, ValueError) as error:
                log.error("model.refused", model=self._taken, error=str(error), in_use=models.current.manifest.model_id)
                continue
            models.use(engine)
            log.info("model.used", model=engine.manifest.model_id)

    def _load(self, model: str) -> OnnxSoundEngine:
        engine = OnnxSoundEngine(self._registry.find(model))
        warm(engine)
        # Its windows stay readable when an upgrade brings another model of that name.
        self._registry.keep(engine.manifest)
        return engine
