"""Sets the operating points of a bundled model.

    python -m infra.lab.evaluation.bundled_points --data DATA [--model DIR] [--write]

prints points computed from the clips and the clean speech of a data directory; `--write` stores them in the model's
tags.csv and manifest.
"""

import argparse
import sys
from pathlib import Path

from infra import models
from infra.lab.evaluation import manifest_files, recordings, sound
from infra.lab.evaluation.calibration import Calibration, calibrate_bundled, with_points
from infra.lab.script import script
from streams.models.sound_engine import OnnxSoundEngine
from topics.errors import EngineError


@script
def main(arguments: list[str] | None) -> None:
    """Calibrate a bundled model from the command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.lab.evaluation.bundled_points", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with sound and speech")
    parser.add_argument("--model", type=Path, default=models.directory(models.YAMNET), help="directory of the model")
    parser.add_argument("--write", action="store_true", help="change the model")
    options = parser.parse_args(arguments)
    engine = OnnxSoundEngine(options.model)
    manifest = engine.manifest
    if manifest.second is not None:
        raise EngineError(f"{manifest.name}: points of two models come from infra.lab.training.second_heads")
    # With all points at one half, levels are exact, whatever the points were before.
    halves = Calibration((0.5,) * len(manifest.tags), (0,) * len(manifest.tags))
    engine.manifest = with_points(manifest, halves)
    material = recordings.sound_clips(options.data) + recordings.speech_utterances(options.data)
    points = calibrate_bundled(sound.score_recordings(engine, material))
    print("tag,point,clips")
    for tag, point, clips in zip(manifest.tags, points.points, points.clips, strict=True):
        print(f"{tag.name},{point},{clips}")
    if options.write:
        changed = with_points(manifest, points)
        manifest_files.write(options.model, changed)
        manifest_files.write_tags(options.model, changed)


if __name__ == "__main__":
    sys.exit(main())
