"""What a sound model is worth, in lines and by the names that manifests and the model card use."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation import calibration, recordings, scenes
from infra.lab.evaluation.labels import TEN
from infra.lab.evaluation.metrics import (
    Bools,
    Figures,
    Truth,
    clips_found,
    false_events,
    figures,
    median_of_three,
    naming_accuracy,
)
from infra.lab.evaluation.recordings import Recording, Skipped
from infra.lab.evaluation.sound import Scored, join, score
from streams.models.manifest import LogMel, ModelTag
from streams.models.protocol import Floats, SoundEngine

#: Calls that a time is the median of.
CALLS: Final = 200
#: Sources of models that were trained on the material of bundled models begin with this.
OURS: Final = "infra/lab/training/"
#: What models are measured on, `clips` first.
MATERIAL: Final = ("clips", "scenes", "speech")
#: Folds that the ten classes are named on.
FOLDS: Final = ("1", "2", "3", "4")


class Line(msgspec.Struct, frozen=True):
    """Figures of some recordings, plain and after a median over three windows."""

    material: str
    recordings: int
    minutes: float
    plain: Figures
    median: Figures


class TagLine(msgspec.Struct, frozen=True):
    """A tag: its point, the recordings that the point rests on, and what was found in this evaluation."""

    tag: str
    point: float
    rests_on: int
    clips: int
    found: int
    false_events: int


class Report(msgspec.Struct, frozen=True):
    """One model's evaluation."""

    model: str
    lines: tuple[Line, ...]
    tags: tuple[TagLine, ...]
    #: What the manifest may say of the model, by the names of the model card.
    figures: dict[str, float]
    skipped: tuple[Skipped, ...] = ()
    #: The model was trained on these recordings: what is measured here is what it remembers, the figures are the
    #: manifest's, measured on held-out recordings when it was trained.
    seen: bool = False
    #: What was measured here of a kind that has no lines.
    measured: dict[str, float] = {}


def of_bundled(engine: SoundEngine, data: Path, against: SoundEngine) -> Report:
    """Measure a model on clips, on scenes made of them, and on clean speech of a data directory.

    The lines called cross-checked have the points that the other half of the recordings asks for, so they tell what to
    expect of recordings that nobody set points on; these are the figures.

    Args:
        engine: The model.
        data: Directory with `sound` and `speech`.
        against: The model whose time a window is the unit of this one's.

    Raises:
        BadRequest: the recordings are not there.
        EngineError: the model failed.
    """
    parts = [_part(engine, clips, talk) for clips, talk in halves(data)]
    lines = _lines(parts)
    clips = join([part.clips for part in parts])
    whole = join([part.calibrates for part in parts])
    manifest = engine.manifest
    seen = manifest.source.startswith(OURS) or manifest.heads is not None
    speed = {"window_ms_ratio": _time_ratio(engine, against)}
    return Report(
        model=manifest.model_id,
        lines=tuple(lines),
        tags=tag_lines(manifest.tags, whole.reported, whole.truth),
        figures=(manifest.figures if seen else _figures(lines, naming(clips))) | speed,
        skipped=clips.skipped,
        seen=seen,
    )


def held_out(judges: Sequence[SoundEngine], data: Path) -> dict[str, float]:
    """Return the figures of a model that learns from the recordings: a judge of each half learnt from the other.

    Raises:
        BadRequest: the recordings are not there.
        EngineError: a model failed.
    """
    parts = [_part(judge, clips, talk) for judge, (clips, talk) in zip(judges, halves(data), strict=True)]
    return _figures(_lines(parts), naming(join([part.clips for part in parts])))


def of_recordings(engine: SoundEngine, material: Sequence[Recording], skipped: Sequence[Skipped]) -> Report:
    """Measure a model on recordings of a user, of which some were left out before.

    Raises:
        BadRequest: there is no recording left.
        EngineError: the model failed.
    """
    scored = score(engine, material)
    only = line("recordings", scored, scored.reported)
    return Report(
        model=engine.manifest.model_id,
        lines=(only,),
        tags=tag_lines(scored.manifest.tags, scored.reported, scored.truth),
        figures=named(only),
        skipped=(*skipped, *scored.skipped),
    )


class Part(msgspec.Struct, frozen=True):
    """Half of the material that bundled models are measured on."""

    clips: Scored
    scenes: Scored
    speech: Scored

    @property
    def calibrates(self) -> Scored:
        """What points are set on."""
        return join([self.clips, self.speech])


def halves(data: Path) -> Iterable[tuple[list[Recording], list[Recording]]]:
    """Return (clips, speech) twice, with no source in common."""
    return zip(recordings.halves(recordings.sounds(data)), recordings.halves(recordings.speech(data)), strict=True)


def _part(engine: SoundEngine, clips: list[Recording], speech: list[Recording]) -> Part:
    return Part(score(engine, clips), score(engine, scenes.build(clips, speech)), score(engine, speech))


def _lines(parts: Sequence[Part]) -> list[Line]:
    """Return two lines for each kind of material: at the model's points, and at those that the other half asks for."""
    points = [calibration.of_bundled(part.calibrates).points for part in reversed(parts)]
    lines = []
    for name in MATERIAL:
        scored = [getattr(part, name) for part in parts]
        both = join(scored)
        crossed = np.concatenate([half.reported_at(at) for half, at in zip(scored, points, strict=True)])
        lines += [line(name, both, both.reported), line(f"{name}, cross-checked", both, crossed)]
    return lines


def naming(clips: Scored) -> float | None:
    """Return how often the ten classes of ESC-10 are named right; None where the model or the clips lack them."""
    names = [tag.name for tag in clips.manifest.tags]
    if not set(TEN.values()) <= set(names):
        return None
    labels = list(TEN)
    right = [labels.index(clip.label) if clip.label in TEN and clip.fold in FOLDS else -1 for clip in clips.recordings]
    asked = np.array(right) >= 0
    if not asked.any():
        return None
    windows = asked[clips.truth.recording]
    scores = clips.probabilities[windows][:, [names.index(tag) for tag in TEN.values()]]
    return naming_accuracy(scores, clips.truth.recording[windows], np.array(right)[asked])


def line(material: str, scored: Scored, on: Bools) -> Line:
    """Return the figures of detections, bool[windows, tags], on recordings."""
    truth = scored.truth
    median = median_of_three(on, truth.recording)
    return Line(material, len(scored.recordings), truth.minutes, figures(on, truth), figures(median, truth))


def tag_lines(tags: Sequence[ModelTag], on: Bools, truth: Truth) -> tuple[TagLine, ...]:
    """Return what detections, bool[windows, tags], found of each tag."""
    hits, clips = clips_found(on, truth)
    false = false_events(on, truth)
    return tuple(
        TagLine(tag.name, tag.point, tag.clips, int(clips[column]), int(hits[column]), int(false[column]))
        for column, tag in enumerate(tags)
    )


def _figures(lines: Sequence[Line], ten: float | None) -> dict[str, float]:
    by_name = {} if ten is None else {"ten_class_clip_accuracy": round(ten, 4)}
    clips, *others = lines[1::2]
    by_name |= named(clips)
    for name, crossed in zip(MATERIAL[1:], others, strict=True):
        by_name |= {f"{name}_{key}": value for key, value in named(crossed).items() if key.startswith("false")}
    return by_name


def named(figures_line: Line) -> dict[str, float]:
    """Return a line's figures that can be had, those of the median with its name behind."""
    sides = (("", figures_line.plain), ("_median", figures_line.median))
    by_name = {f"{key}{end}": value for end, side in sides for key, value in msgspec.structs.asdict(side).items()}
    return {key: round(value, 4) for key, value in by_name.items() if value == value}


def _time_ratio(engine: SoundEngine, against: SoundEngine) -> float:
    """Return the median time of scoring a patch on one thread, in units of another model's, call by call in turn."""
    if engine.manifest.model_id == against.manifest.model_id:
        return 1.0
    times: tuple[list[float], list[float]] = ([], [])
    patches = _patch(engine), _patch(against)
    for _ in range(CALLS):
        for one, patch, durations in zip((engine, against), patches, times, strict=True):
            start = time.perf_counter()
            one.scores(patch)
            durations.append(time.perf_counter() - start)
    return round(statistics.median(times[0]) / statistics.median(times[1]), 2)


def _patch(engine: SoundEngine) -> Floats:
    front_end = engine.manifest.input
    shape = (front_end.frames, front_end.bands) if isinstance(front_end, LogMel) else (front_end.samples,)
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)
