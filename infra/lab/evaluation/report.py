"""The evaluation of a sound model as figures, by the names used in manifests and the model card."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation import calibration, recordings, scenes
from infra.lab.evaluation.labels import TEN
from infra.lab.evaluation.metrics import (
    DetectionFigures,
    Truth,
    any_by_recording,
    count_clips_found,
    count_clips_reported,
    event_starts,
    false_events,
    figures,
    median_of_three,
    naming_accuracy,
)
from infra.lab.evaluation.recordings import Recording, SkippedRecording
from infra.lab.evaluation.sound import ScoredRecordings, join_scored, score_recordings, sound_recall
from infra.teaching.operating_points import Bools, average_precision
from streams.models.manifest import Evaluation, ModelTag, TagEvaluation
from streams.models.protocol import SoundEngine
from topics.geometry import SESSIONS
from topics.scores import CERTAIN

#: Number of calls whose median time is reported.
CALLS: Final = 200
#: Prefix of the `source` of models trained on the evaluation data.
OURS: Final = "infra/lab/training/"
#: Kinds of evaluation material, `clips` first.
MATERIAL: Final = ("clips", "scenes", "speech")
#: Half of the evaluation material for bundled models, by kind.
MaterialHalf = Mapping[str, ScoredRecordings]
#: Describes the counts of tags.
HOW: Final = (
    "{clips} clips of five seconds of 50 sounds, most of them eight clips each, and {speech} readings of clean speech, "
    "at the points of this model, which were chosen on the same recordings: expect less of others."
)
#: Folds on which the ten classes are named.
FOLDS: Final = ("1", "2", "3", "4")


class MaterialFigures(msgspec.Struct, frozen=True):
    """Figures of recordings, plain and after a median over three windows."""

    material: str
    recordings: int
    minutes: float
    plain: DetectionFigures
    median: DetectionFigures


class TagFigures(msgspec.Struct, frozen=True):
    """A tag: its point, the number of recordings that support the point, and its hits in this evaluation."""

    tag: str
    point: float
    rests_on: int
    clips: int
    found: int
    false_events: int


class EvaluationReport(msgspec.Struct, frozen=True):
    model: str
    #: Figures for the manifest, by the names of the model card.
    figures: dict[str, float]
    lines: tuple[MaterialFigures, ...] = ()
    tags: tuple[TagFigures, ...] = ()
    skipped: tuple[SkippedRecording, ...] = ()
    #: The model was trained on these recordings, so the lines show training performance. The figures are then those of
    #: the manifest, measured on held-out recordings at training time.
    seen: bool = False
    #: Figures of a kind of model that has no lines.
    measured: dict[str, float] = {}
    #: Figures by tag for the manifest of a bundled model.
    evaluation: Evaluation | None = None


def evaluate_bundled(engine: SoundEngine, data: Path, against: SoundEngine) -> EvaluationReport:
    """Measure a model on clips, on scenes made of them, and on clean speech of a data directory.

    In the cross-checked lines, each half of the recordings is scored at points set on the other half, so they predict
    results on new recordings. The figures come from these lines. The unit of the model's time for a window is that of
    `against`.

    Raises:
        BadRequest: The recordings are missing.
        EngineError: The model failed.
    """
    parts = [_score_half(engine, clips, talk) for clips, talk in halves(data)]
    points = _points_of_the_other(parts)
    clips = join_scored([part["clips"] for part in parts])
    whole = join_scored([_calibration_material(part) for part in parts])
    manifest = engine.manifest
    seen = manifest.source.startswith(OURS) or manifest.heads is not None
    return EvaluationReport(
        model=manifest.model_id,
        lines=tuple(_lines(parts, points)),
        tags=tag_figures(manifest.tags, whole.reported, whole.truth),
        figures=(manifest.figures if seen else crossed_figures(parts, points)) | _speed(engine, against),
        skipped=clips.skipped,
        seen=seen,
        evaluation=evaluate_tags(whole, seen=manifest.source.startswith(OURS)),
    )


def held_out_figures(judges: Sequence[SoundEngine], data: Path) -> dict[str, float]:
    """Return the figures of a model that learns from the recordings.

    Each of the two `judges` is measured on the half that it did not learn from.

    Raises:
        BadRequest: The recordings are missing.
        EngineError: A model failed.
    """
    parts = [_score_half(judge, clips, talk) for judge, (clips, talk) in zip(judges, halves(data), strict=True)]
    return crossed_figures(parts, _points_of_the_other(parts))


def evaluate_recordings(
    engine: SoundEngine, material: Sequence[Recording], skipped: Sequence[SkippedRecording]
) -> EvaluationReport:
    """Measure a model on a user's recordings; `skipped` lists those already left out.

    Raises:
        BadRequest: No recording is left.
        EngineError: The model failed.
    """
    scored = score_recordings(engine, material)
    only = material_figures("recordings", scored, scored.reported)
    return EvaluationReport(
        model=engine.manifest.model_id,
        lines=(only,),
        tags=tag_figures(scored.manifest.tags, scored.reported, scored.truth),
        figures=card_figures(only),
        skipped=(*skipped, *scored.skipped),
    )


def halves(data: Path) -> Iterable[tuple[list[Recording], list[Recording]]]:
    """Yield (clips, speech) of both halves, with no common source."""
    return zip(
        recordings.halves(recordings.sound_clips(data)),
        recordings.halves(recordings.speech_utterances(data)),
        strict=True,
    )


def _score_half(engine: SoundEngine, clips: list[Recording], speech: list[Recording]) -> MaterialHalf:
    material = (clips, scenes.build_scenes(clips, speech), speech)
    return {name: score_recordings(engine, kind) for name, kind in zip(MATERIAL, material, strict=True)}


def _calibration_material(half: MaterialHalf) -> ScoredRecordings:
    return join_scored([half["clips"], half["speech"]])


def _points_of_the_other(parts: Sequence[MaterialHalf]) -> list[tuple[float, ...]]:
    return [calibration.calibrate_bundled(_calibration_material(part)).points for part in reversed(parts)]


def _lines(parts: Sequence[MaterialHalf], points: Sequence[Sequence[float]]) -> list[MaterialFigures]:
    """Return two lines per kind of material: at the model's points, and at each half's own."""
    lines = []
    for name in MATERIAL:
        both = join_scored([part[name] for part in parts])
        lines += [material_figures(name, both, both.reported), _crossed_line(name, parts, points)]
    return lines


def _crossed_line(name: str, parts: Sequence[MaterialHalf], points: Sequence[Sequence[float]]) -> MaterialFigures:
    both, crossed = _at(name, parts, points)
    return material_figures(f"{name}, cross-checked", both, crossed)


def _at(
    name: str, parts: Sequence[MaterialHalf], points: Sequence[Sequence[float]], least: float = 0.5
) -> tuple[ScoredRecordings, Bools]:
    """Return one kind of material of both halves, and its detections at the points of each half."""
    scored = [part[name] for part in parts]
    on = np.concatenate([half.reported_at(at, least) for half, at in zip(scored, points, strict=True)])
    return join_scored(scored), on


def _certain_events(parts: Sequence[MaterialHalf], points: Sequence[Sequence[float]]) -> float:
    """Return the share of events in clips and scenes that are right, of those that a sentence states as a fact."""
    events, wrong = 0, 0
    for name in ("clips", "scenes"):
        scored, on = _at(name, parts, points, CERTAIN)
        events += int(event_starts(on, scored.truth.recording).sum())
        wrong += int(false_events(on, scored.truth).sum())
    return 1.0 - wrong / events if events else math.nan


def crossed_figures(parts: Sequence[MaterialHalf], points: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the figures of two halves at their points, by the names of the model card."""
    ten = ten_class_accuracy(join_scored([part["clips"] for part in parts]))
    by_name = {} if ten is None else {"ten_class_clip_accuracy": round(ten, 4)}
    by_name |= card_figures(_crossed_line("clips", parts, points))
    for name in MATERIAL[1:]:
        figures = card_figures(_crossed_line(name, parts, points))
        by_name |= {f"{name}_{key}": value for key, value in figures.items() if key.startswith("false")}
    more = {
        "certain_events": _certain_events(parts, points),
        "scenes_sound_recall": sound_recall(*_at("scenes", parts, points)),
    }
    return by_name | {name: round(value, 4) for name, value in more.items() if not math.isnan(value)}


def ten_class_accuracy(clips: ScoredRecordings) -> float | None:
    """Return the accuracy on the ten classes of ESC-10, 0..1; None if the model or the clips lack them."""
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


def material_figures(material: str, scored: ScoredRecordings, on: Bools) -> MaterialFigures:
    """Return the figures of detections, bool[windows, tags], on recordings."""
    truth = scored.truth
    median = median_of_three(on, truth.recording)
    return MaterialFigures(material, len(scored.recordings), truth.minutes, figures(on, truth), figures(median, truth))


def tag_figures(tags: Sequence[ModelTag], on: Bools, truth: Truth) -> tuple[TagFigures, ...]:
    hits, clips = count_clips_found(on, truth)
    false = false_events(on, truth)
    return tuple(
        TagFigures(tag.name, tag.point, tag.clips, int(clips[column]), int(hits[column]), int(false[column]))
        for column, tag in enumerate(tags)
    )


def evaluate_tags(scored: ScoredRecordings, *, seen: bool) -> Evaluation:
    """Return each tag's results at its point; set `seen` if the whole model was learnt from these recordings."""
    on, truth, second = scored.reported, scored.truth, scored.manifest.second
    highest = np.maximum.reduceat(scored.stored, np.flatnonzero(np.diff(truth.recording, prepend=-1)), axis=0)
    found, clips = count_clips_found(on, truth)
    reported, right = count_clips_reported(on, truth)
    has = any_by_recording(truth.true, truth.recording)
    # Where a tag is tolerated but not true, a report is neither right nor wrong.
    judged = has | ~any_by_recording(truth.allowed, truth.recording)
    tags = {}
    for column, tag in enumerate(scored.manifest.tags):
        which = judged[:, column]
        precision = average_precision(highest[which, column], has[which, column])
        tags[tag.name] = TagEvaluation(
            int(clips[column]),
            int(found[column]),
            int(reported[column]),
            int(right[column]),
            None if math.isnan(precision) else round(precision, 3),
            seen or tag.head is not None or (second is not None and second.tags[column].head is not None),
        )
    speech = sum(recording.label == "speech" for recording in scored.recordings)
    how = HOW.format(clips=len(scored.recordings) - speech, speech=speech)
    return Evaluation(how, len(scored.recordings), tags)


def card_figures(figures_line: MaterialFigures) -> dict[str, float]:
    """Return the numeric figures of a line by name; those of the median end in `_median`."""
    sides = (("", figures_line.plain), ("_median", figures_line.median))
    by_name = {f"{key}{end}": value for end, side in sides for key, value in msgspec.structs.asdict(side).items()}
    return {key: round(value, 4) for key, value in by_name.items() if value == value}


def _speed(engine: SoundEngine, against: SoundEngine) -> dict[str, float]:
    """Return the time of a window, in recordings and if different in streams, relative to another model."""
    if engine.manifest.model_id == against.manifest.model_id:
        return {"window_ms_ratio": 1.0}
    speed = {"window_ms_ratio": _time_ratio(engine, against, recording=True)}
    if engine.second is not None:
        speed["stream_window_ms_ratio"] = _time_ratio(engine, against, recording=False)
    return speed


def _time_ratio(engine: SoundEngine, against: SoundEngine, recording: bool) -> float:
    """Return the ratio of two models' median times to score a window on one thread, with alternating calls."""
    times: tuple[list[float], list[float]] = ([], [])
    calls = _window(engine, recording), _window(against, recording)
    for _ in range(CALLS):
        for call, durations in zip(calls, times, strict=True):
            durations.append(call())
    return round(statistics.median(times[0]) / statistics.median(times[1]), 2)


def _window(engine: SoundEngine, recording: bool) -> Callable[[], float]:
    """Return a function that scores a patch, hears a context if there is a second model, and returns seconds."""
    patch = np.random.default_rng(0).standard_normal(engine.manifest.input.shape).astype(np.float32)
    second, about = engine.second, engine.manifest.second

    def seconds() -> float:
        start = time.perf_counter()
        engine.scores(patch)
        end = time.perf_counter()
        if second is None or about is None:
            return end - start
        second.hear(frames, recording)
        return end - start + (time.perf_counter() - end) * SESSIONS.hop_ms / about.context(recording).hop_ms

    if about is not None:
        frames = np.zeros((about.context(recording).frames, about.input.bands), np.float32)
    return seconds
