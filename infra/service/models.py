"""Describes the models in use by their manifests."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from infra import models
from infra.models import manifests, registry, whisper_files
from infra.models.manifests import AnyManifest
from streams.models.loaded_models import LoadedModels
from streams.models.manifest import Manifest, TagEvaluation
from topics.errors import EngineError
from topics.geometry import SESSIONS
from topics.ports.models import ModelFacts, TagFacts, TagFigures


class ModelsInUse:
    """Implements the port `topics.ports.models.Models`: the sound model and the bundled models of voices and speech."""

    def __init__(self, sounds: LoadedModels, speech: str | None) -> None:
        """`speech` is the bundled speech model; None if another engine is used."""
        self._sounds = sounds
        self._speech = speech

    @property
    def fault(self) -> str | None:
        """Why the sound model in use replaces the chosen one."""
        return self._sounds.fault

    def in_use(self) -> Sequence[ModelFacts]:
        manifest = self._sounds.current.manifest
        shipped = manifest.model_id in self._shipped
        return [msgspec.structs.replace(_sound(manifest), shipped=shipped), *self._others]

    @cached_property
    def _shipped(self) -> frozenset[str]:
        return frozenset(entry.model_id for entry in registry.bundled())

    @cached_property
    def _others(self) -> list[ModelFacts]:
        found: list[AnyManifest] = [manifests.read(models.directory(models.SPEAKERS))]
        if self._speech in whisper_files.DIRECTORIES:
            with suppress(EngineError):  # It was not converted here; its engine reports that and uses another.
                found.append(whisper_files.find(self._speech)[1])
        return [ModelFacts(**_common(one), sample_rate=one.input.sample_rate) for one in found]


def _sound(manifest: Manifest) -> ModelFacts:
    front, evaluation = manifest.input, manifest.evaluation
    counts = {} if evaluation is None else evaluation.tags
    return ModelFacts(
        **_common(manifest),
        sample_rate=front.sample_rate,
        window_seconds=round(front.samples / front.sample_rate, 4),
        hop_seconds=SESSIONS.hop_ms / 1000,
        classes=len(manifest.classes),
        how_measured=None if evaluation is None else evaluation.how,
        recordings=None if evaluation is None else evaluation.recordings,
        tags=[
            TagFacts(tag.name, tag.category, point, tag.clips, _figures(counts.get(tag.name)))
            for tag, point in zip(manifest.tags, manifest.points(recording=True), strict=True)
        ],
    )


def _common(manifest: AnyManifest) -> dict[str, Any]:
    return {
        "id": manifest.model_id,
        "kind": manifests.kind(manifest),
        "name": manifest.name,
        "version": manifest.version,
        "licence": manifest.licence,
        "source": manifest.source,
        "sha256": manifest.graph.sha256,
    }


def _figures(counts: TagEvaluation | None) -> TagFigures | None:
    if counts is None:
        return None
    return TagFigures(
        counts.clips,
        counts.found,
        counts.reported,
        counts.right,
        _share(counts.found, counts.clips),
        _share(counts.right, counts.reported) if counts.clips else None,
        counts.average_precision,
        counts.learnt,
    )


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None
