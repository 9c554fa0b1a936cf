"""Shared code of commands that run a model in their own process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streams.models.sound_engine import OnnxSoundEngine

Model = Annotated[
    str | None,
    typer.Option("--model", help="Model by name, id or directory; by default the one in use.", show_default=False),
]


def engine(name: str | None) -> tuple[OnnxSoundEngine, Path]:
    """Return a loaded model and its directory: `name`, or the model for new sessions.

    Raises:
        EngineError: there is no such model, or it cannot be used.
    """
    from infra import scratch, settings
    from infra.models.registry import Registry
    from streams.models.sound_engine import OnnxSoundEngine

    loaded = settings.load()
    scratch.prepare()
    registry = Registry(loaded.data)
    directory = registry.find(name or registry.model_for_new_sessions(loaded.model))
    return OnnxSoundEngine(directory), directory
