"""Checks that a model can be used: its files match the manifest, and it scores."""

import re
import statistics
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from infra.models import manifests, whisper_files
from infra.models.speech_manifest import SpeechManifest
from streams.audio import logmel
from streams.audio.analysis import Analysis
from streams.models import runtime
from streams.models.manifest import FILE, LogMel, Manifest
from streams.models.sound_engine import OnnxSoundEngine
from streams.voice.overlap import OnnxOverlapDetector
from streams.voice.overlap_manifest import OverlapManifest
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speech_segments import RATE
from topics.errors import EarshotError, EngineError
from topics.geometry import SESSIONS

#: Names become parts of file names and of model ids.
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
RUNS: Final = 5


class CheckResult(msgspec.Struct, frozen=True):
    """A model that passed, and the milliseconds that a patch (or a second of voice or speech) takes on one thread."""

    model_id: str
    milliseconds: float


def check(directory: Path, *, known: Collection[str] | None = ()) -> CheckResult:
    """Check the manifest and its graphs, load the model and let it score silence and noise.

    Graphs whose SHA-256 is not in `known` also get their nodes checked, which needs the package onnx; None skips this.

    Raises:
        EngineError: the model cannot be used; one line naming the fault.
    """
    manifest = manifests.read(directory)
    if not NAME.fullmatch(manifest.name):
        raise EngineError(f"{directory / FILE}: name is {manifest.name!r}, expected a-z, 0-9, '.', '_' and '-'")
    try:
        canonicalize_license_expression(manifest.licence)
    except InvalidLicenseExpression as error:
        raise EngineError(
            f"{directory / FILE}: licence {manifest.licence!r} is unknown, expected an SPDX expression such as "
            "Apache-2.0 or MIT AND CC-BY-4.0, or LicenseRef-NAME"
        ) from error
    path = directory / manifest.graph.file
    if isinstance(manifest, SpeechManifest):
        whisper_files.check(directory, manifest)
        return CheckResult(manifest.model_id, _encode(directory, manifest))
    for graph in manifests.graphs(manifest):
        content = runtime.read_file(directory / graph.file, graph.sha256)
        if known is not None and graph.sha256 not in known:
            from infra.models import graphs

            graphs.check(str(directory / graph.file), content)
    measure = {Manifest: _score, OverlapManifest: _time_overlap_model}.get(type(manifest), _embed)
    try:
        return CheckResult(manifest.model_id, measure(directory))
    except EarshotError:
        raise
    except Exception as error:  # a damaged graph may raise anything
        raise EngineError(f"{path}: {runtime.first_line(error)}") from error


def _score(directory: Path) -> float:
    engine = OnnxSoundEngine(directory)
    front = engine.manifest.input
    # Raises if patches do not fit the grid of windows.
    Analysis(engine, SESSIONS, front.sample_rate)
    noise = np.random.default_rng(0).normal(0, 0.1, front.samples).astype(np.float32)
    for samples in (np.zeros_like(noise), noise):
        patch = logmel.log_mel_frames(front, samples) if isinstance(front, LogMel) else samples
        scores = engine.scores(patch)
        if not np.isfinite(scores).all():
            raise EngineError(f"{engine.manifest.model_id}: gives scores that are not numbers")
        if scores.min() < 0 or scores.max() > 1:
            raise EngineError(
                f"{engine.manifest.model_id}: gives scores from {scores.min():g} to {scores.max():g}, expected 0 to 1 "
                '(logits need "activation": "sigmoid")'
            )
    return _milliseconds(lambda: engine.scores(patch))


def _embed(directory: Path) -> float:
    engine = OnnxSpeakerEngine(directory)
    front_end = engine.manifest.input
    length = min(max(front_end.min_samples, front_end.sample_rate), front_end.max_samples)
    noise = np.random.default_rng(0).normal(0, 0.1, length).astype(np.float32)
    return _milliseconds(lambda: engine.embed(noise))


def _time_overlap_model(directory: Path) -> float:
    detector = OnnxOverlapDetector(directory)
    samples = detector.manifest.input.samples
    noise = np.random.default_rng(0).normal(0, 0.1, samples).astype(np.float32)
    return _milliseconds(lambda: detector.probabilities(noise)) * RATE / samples


def _encode(directory: Path, manifest: SpeechManifest) -> float:
    import ctranslate2

    front = manifest.input
    silence = np.zeros((1, front.bands, 100 * front.seconds), np.float32)
    try:
        model = ctranslate2.models.Whisper(str(directory), compute_type="int8", intra_threads=1)
        took = _milliseconds(lambda: model.encode(ctranslate2.StorageView.from_array(silence), to_cpu=True))
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"{directory / manifest.graph.file}: {runtime.first_line(error)}") from error
    return took / front.seconds


def _milliseconds(run: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)
