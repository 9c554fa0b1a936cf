"""Makes `infra/models/speaker_mini/model.onnx`, a speaker-embedding model, and measures it on held-out readers.

    python -m infra.lab.training.speaker --data DATA --out DIR

The lower half of the net is the first nine layers of YAMNet, unchanged. The upper half is a linear discriminant
projection of their statistics, learnt here from the LibriSpeech utterances in `speech` of the data directory. Three
nets are trained first, each without the readers of one fold, evaluated on those readers, and written to OUT/fold<k>
with a list of them. The mean figures go into the manifest of the net trained on all readers, which is written to OUT.
"""

import hashlib
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import onnx

from infra.lab.evaluation import identification, utterances
from infra.lab.evaluation.identification import evaluate_identification
from infra.lab.evaluation.speakers import evaluate_speakers
from infra.lab.evaluation.utterances import SAMPLE_RATE, Utterance
from infra.lab.script import parser, run
from infra.lab.training import speaker_graph, speaker_projection, speaker_trunk
from infra.lab.training.speaker_statistics import CHANNELS, SPEEDS, Crops, crops
from infra.models import manifests
from streams.models.manifest import Graph
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speaker_manifest import DiarizationSettings, IdentificationSettings, SpeakerManifest, UtteranceInput
from topics.errors import BadRequest

NAME: Final = "speaker-mini"
VERSION: Final = "1"
SEED: Final = 0
FOLDS: Final = 3
SOURCE: Final = "infra/lab/training/speaker.py"
#: Chosen by `infra.lab.evaluation.diarization_threshold` on synthetic conversations of held-out readers.
DIARIZATION: Final = DiarizationSettings(window_s=1.6, hop_s=0.8, threshold=0.78)
NOTICE: Final = """\
speaker-mini
Licensed under the Apache License, Version 2.0; the text is the file LICENSE at the root of this project.

model.onnx holds, unchanged, the first nine layers of YAMNet, Copyright 2019 The TensorFlow Authors, Apache License
2.0 (see the NOTICE of the model yamnet). The layer above them was trained by infra/lab/training/speaker.py on one
utterance of each of 251 readers of the LibriSpeech ASR corpus, part train-clean-100, by Vassil Panayotov, Guoguo
Chen, Daniel Povey and Sanjeev Khudanpur, CC BY 4.0, https://www.openslr.org/12, made of recordings by volunteers of
LibriVox. Changes: the recordings were played at other speeds, filtered, reverberated and mixed with noise; the file
holds numbers learnt from them, no audio.
"""


#: Makes a manifest of a threshold, settings of identification, and figures.
Describe = Callable[[float, IdentificationSettings | None, dict[str, float]], SpeakerManifest]
#: Measures an engine on some readers of a folder.
FurtherFigures = Callable[[OnnxSpeakerEngine, Path, Sequence[str]], dict[str, float]]


class Fold(NamedTuple):
    """Some readers, and a net that did not learn from them."""

    name: str
    held: Sequence[str]
    net: onnx.ModelProto


def make_crops(read: Sequence[Utterance]) -> list[Crops]:
    """Return the crops of all utterances at all speeds, unchanged and through several channels.

    Each reader at each speed is a voice: number `speed * len(read) + utterance`, both counted from 0.
    """
    trunk = speaker_trunk.session()
    all_crops = []
    for number, speed in enumerate(SPEEDS):
        for channel in range(1 + CHANNELS):
            part = crops(trunk, read, speed, channel > 0, seed=SEED + channel)
            all_crops.append(Crops(part.statistics, part.voices + number * len(read)))
            print(f"speed {speed} %, channel {channel}: {len(part.voices)} crops", file=sys.stderr, flush=True)
    return all_crops


def fold_nets(read: Sequence[Utterance], all_crops: Sequence[Crops]) -> Iterator[Fold]:
    for number, held in enumerate(utterances.folds((utterance.speaker for utterance in read), FOLDS, SEED)):
        net = speaker_graph.build(speaker_projection.learn(without_readers(read, all_crops, held)))
        yield Fold(f"fold{number}", held, net)


def cross_check(
    folds: Iterable[Fold], data: Path, out: Path, describe: Describe, further: FurtherFigures = lambda *_: {}
) -> SpeakerManifest:
    """Measure the net of each fold on its readers, write both to `out`, and return a manifest with the mean figures.

    Raises:
        BadRequest: There is no fold.
    """
    figures, thresholds, matches, growths = [], [], [], []
    speech = data / "speech"
    for name, held, net in folds:
        engine = write(net, describe(0.5, None, {}), out / name)
        (out / name / "speakers.txt").write_text("".join(f"{speaker}\n" for speaker in held))
        rates, threshold = evaluate_speakers(engine, speech, held)
        thresholds.append(threshold)
        matches.append(evaluate_identification(engine, speech, held))
        growths.append(identification.threshold_growth(engine, speech, held))
        figures.append(rates | further(engine, speech, held))
        print(f"{name}: {figures[-1]}", file=sys.stderr, flush=True)
    if not figures:
        raise BadRequest("there is no fold to measure")
    accepting, shares = identification.cross_checked_figures(matches)
    means = {name: float(np.mean([one[name] for one in figures])) for name in figures[0]}
    identifies = IdentificationSettings(accepting, float(np.mean(growths)))
    return describe(float(np.mean(thresholds)), identifies, means | shares)


def without_readers(read: Sequence[Utterance], all_crops: Sequence[Crops], held: Container[str]) -> list[Crops]:
    mask = np.array([utterance.speaker not in held for utterance in read])
    chosen = [mask[part.voices % len(read)] for part in all_crops]
    return [Crops(part.statistics[rows], part.voices[rows]) for part, rows in zip(all_crops, chosen, strict=True)]


def make_manifest(
    threshold: float, identifies: IdentificationSettings | None, figures: dict[str, float]
) -> SpeakerManifest:
    """Return the manifest of a net with its thresholds; `write` fills in the SHA-256 of the graph."""
    return SpeakerManifest(
        name=NAME,
        version=VERSION,
        licence="Apache-2.0",
        source=SOURCE,
        graph=Graph("model.onnx", "0" * 64),
        input=UtteranceInput(SAMPLE_RATE, min_samples=SAMPLE_RATE // 2, max_samples=30 * SAMPLE_RATE),
        dimension=speaker_projection.DIMENSION,
        threshold=round(threshold, 3),
        diarization=DIARIZATION,
        identification=identifies
        and IdentificationSettings(round(identifies.threshold, 3), round(identifies.per_doubling, 3)),
        figures={name: round(value, 4) for name, value in figures.items()},
    )


def write(model: onnx.ModelProto, description: SpeakerManifest, folder: Path) -> OnnxSpeakerEngine:
    """Write a graph and its manifest to `folder` and return the engine that the service would load."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = model.SerializeToString(deterministic=True)
    (folder / description.graph.file).write_bytes(graph)
    sha256 = hashlib.sha256(graph).hexdigest()
    manifests.write(folder, msgspec.structs.replace(description, graph=Graph(description.graph.file, sha256)))
    return OnnxSpeakerEngine(folder)


def main() -> None:
    options = parser(__doc__, "--data", "--out").parse_args()
    read = utterances.read(options.data / "speech")
    all_crops = make_crops(read)
    model = cross_check(fold_nets(read, all_crops), options.data, options.out, make_manifest)
    write(speaker_graph.build(speaker_projection.learn(all_crops)), model, options.out)
    (options.out / "NOTICE").write_text(NOTICE)


if __name__ == "__main__":
    run(main)
