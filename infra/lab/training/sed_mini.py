"""Makes `infra/models/sed_mini/model.onnx`, the small sound-event model, from scratch, with manifest and notice.

    python -m infra.lab.training.sed_mini --data DATA --out DIR [--jobs N]

It also trains four more nets, each without one fold, and evaluates each on its fold as an int8 graph. Their scores give
the figures and operating points of the manifest.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from infra import models
from infra.lab.converters.front_end import FRONT_END
from infra.lab.script import parser, run, write_model
from infra.lab.training import cross_check, material
from infra.lab.training.attribution import notice
from infra.lab.training.clips import FOLDS, KNOWN, read_clips
from infra.lab.training.material import Material
from streams.models import manifest, runtime
from streams.models.manifest import Graph, Manifest, ModelTag, Output

SEED: Final = 1
STEPS: Final = 2800
#: Number of patches that calibrate the ranges of activations.
CALIBRATION: Final = 400


def train_int8(training_set: Material, held_out: int | None) -> bytes:
    """Train a net on all of `known` except one fold, on one thread, and return its int8 ONNX file."""
    import torch

    from infra.lab.training import quantize, sound_net

    torch.set_num_threads(1)
    if held_out is not None:
        training_set = training_set.rows(training_set.folds != held_out)
    name = "all" if held_out is None else f"without fold {held_out}"
    net = sound_net.train(training_set, STEPS, SEED, report=partial(print, f"{name}:", flush=True))
    rows = np.random.default_rng(SEED).choice(
        len(training_set.folds), CALIBRATION, p=material.draw_chances(training_set)
    )
    return quantize.quantise(net, training_set.patches[rows].astype(np.float32))


def build(data: Path, out: Path, *, jobs: int) -> None:
    """Train and write the model, `jobs` nets at a time, with the bundled YAMNet as the teacher."""
    clips = read_clips(data)
    text = notice(clips)  # check licences before the work begins
    directory = models.directory("yamnet")
    graph_file = manifest.read(directory).graph
    teacher = runtime.open_session(directory / graph_file.file, graph_file.sha256)
    training_set = material.prepare(clips, teacher, SEED)
    # Children are forked to share the material without a copy; only they import torch.
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        shipped = pool.submit(train_int8, training_set, None)
        checks = {fold: pool.submit(train_int8, training_set, fold) for fold in FOLDS}
        graphs = {fold: check.result() for fold, check in checks.items()}
        graph = shipped.result()
    scores = cross_check.held_out_scores(clips, graphs)
    model = manifest_of(graph, cross_check.operating_points(scores), cross_check.figures(scores))
    write_model(out, model, {model.graph.file: graph}, text)
    for name, figure in model.figures.items():
        print(f"{name:32} {figure:.4f}")
    print(f"{model.model_id}: {len(graph)} bytes, {out}")


def manifest_of(graph: bytes, points: Sequence[float], figures: dict[str, float]) -> Manifest:
    return Manifest(
        name="sed-mini",
        version="1",
        licence="Apache-2.0",
        source="infra/lab/training/sed_mini.py",
        graph=Graph(file="model.onnx", sha256=hashlib.sha256(graph).hexdigest()),
        input=FRONT_END,
        output=Output(scores="scores", embedding="embedding"),
        classes=tuple(label for label, _, _ in KNOWN),
        tags=tuple(
            ModelTag(name=tag, category=category, classes=(index,), point=round(point, 3))
            for index, ((_, tag, category), point) in enumerate(zip(KNOWN, points, strict=True))
        ),
        figures={name: round(figure, 4) for name, figure in figures.items()},
    )


def main() -> None:
    options_parser = parser(__doc__, "--data", "--out")
    options_parser.add_argument("--jobs", type=int, default=2, help="nets trained side by side, one core each")
    options = options_parser.parse_args()
    build(options.data, options.out, jobs=options.jobs)


if __name__ == "__main__":
    run(main)
