"""Makes `infra/models/speaker_pair/model.onnx` from speaker-mini and Resemblyzer's encoder, and measures it.

    python -m infra.lab.training.speaker_pair --data DATA --mini DIR --wheel FILE --out DIR

DIR is the output of `infra.lab.training.speaker`: speaker-mini and its folds. FILE is the wheel of `resemblyzer` 0.1.4.
Only its weights are read, and they were not trained on the readers of DATA. This module learns the mean vectors of
voices with and without a telephone. For each fold it makes a pair of the fold's speaker-mini with means of all other
readers, writes it to OUT/fold<k> with a list of the fold's readers, and measures it on them, through other telephone
codecs than the means were learnt with. The mean figures go into the manifest in OUT.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import onnx

from infra.lab.evaluation import lines, utterances
from infra.lab.evaluation.channels import heard_through
from infra.lab.evaluation.speakers import channel_errors, cut_segments
from infra.lab.evaluation.utterances import Utterance
from infra.lab.script import parser, run
from infra.lab.training import resemblyzer, speaker, speaker_pair_graph, speaker_trunk
from infra.lab.training.resemblyzer import Weights
from infra.lab.training.speaker import Fold
from infra.lab.training.speaker_pair_graph import Centres
from streams.models.protocol import Floats
from streams.voice.speaker_manifest import DiarizationSettings, IdentificationSettings, SpeakerManifest

NAME: Final = "speaker-pair"
VERSION: Final = "1"
SEED: Final = 0
SOURCE: Final = "infra/lab/training/speaker_pair.py"
#: Pieces of each reader for learning the means.
PIECES: Final = 1
#: Chosen by `infra.lab.evaluation.diarization_threshold` on conversations of held-out readers and on meetings.
DIARIZATION: Final = DiarizationSettings(window_s=1.6, hop_s=0.8, threshold=0.74)
NOTICE: Final = """\
speaker-pair
Licensed under the Apache License, Version 2.0; the text is the file LICENSE at the root of this project.

model.onnx holds two networks. One is speaker-mini, with the notice of its own directory. The other is the voice encoder
of Resemblyzer 0.1.4, Copyright Resemble AI, Apache License 2.0, https://github.com/resemble-ai/Resemblyzer. Changes:
its weights (pretrained.pt, SHA-256 39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e) were rounded to 16
bits and written as ONNX, with a front end of our own; both networks' vectors are centred and joined. The means for that
were learnt by infra/lab/training/speaker_pair.py from one utterance of each of 251 readers of the LibriSpeech ASR
corpus, part train-clean-100, by Vassil Panayotov, Guoguo Chen, Daniel Povey and Sanjeev Khudanpur, CC BY 4.0,
https://www.openslr.org/12. Changes: the recordings were sent through simulated telephones; the file holds numbers
learnt from them, no audio.
"""


def learn_centres(mini: onnx.ModelProto, weights: Weights, read: Sequence[Utterance]) -> Centres:
    """Return the mean vectors of readers, plain and through telephones."""
    width = mini.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    zero = np.zeros(width + resemblyzer.UNITS, np.float32)
    graph = speaker_pair_graph.build(mini, weights, Centres(zero, zero)).SerializeToString()
    session = speaker_trunk.open_session(graph)
    # Without centres each part is its network's unit vector times a factor.
    share = speaker_pair_graph.FIRST_SHARE
    factors = np.repeat(np.sqrt((share, 1.0 - share)), (width, resemblyzer.UNITS)).astype(np.float32)

    def mean(sides: Sequence[Utterance]) -> Floats:
        pieces = [piece for utterance in sides for piece in cut_segments(utterance)[:PIECES]]
        vectors = [session.run(None, {"samples": piece[np.newaxis]})[0][0] for piece in pieces]
        return (np.mean(vectors, axis=0) / factors).astype(np.float32)

    rng = np.random.default_rng(SEED)
    called = heard_through(partial(lines.telephone, codecs=lines.LEARNT_CODECS), read, rng)
    return Centres(mean(read), mean(called))


def make_manifest(
    dimension: int, threshold: float, identifies: IdentificationSettings | None, figures: dict[str, float]
) -> SpeakerManifest:
    """Return the manifest of a pair; `speaker.write` fills in the SHA-256 of the graph."""
    return msgspec.structs.replace(
        speaker.make_manifest(threshold, identifies, figures),
        name=NAME,
        version=VERSION,
        source=SOURCE,
        dimension=dimension,
        diarization=DIARIZATION,
    )


def fold_pairs(folds: Sequence[Path], read: Sequence[Utterance], weights: Weights) -> Iterator[Fold]:
    """Yield a pair for each fold's speaker-mini."""
    for folder in folds:
        held = (folder / "speakers.txt").read_text().split()
        mini = onnx.load(folder / "model.onnx")
        centres = learn_centres(mini, weights, [one for one in read if one.speaker not in held])
        yield Fold(folder.name, held, speaker_pair_graph.build(mini, weights, centres))


def main() -> None:
    options = parser(__doc__, "--data", "--mini", "--wheel", "--out").parse_args()
    folds = sorted(path.parent for path in options.mini.glob("*/speakers.txt"))
    weights = resemblyzer.read_weights(options.wheel)
    mini = onnx.load(options.mini / "model.onnx")
    read = utterances.read(options.data / "speech")
    centres = learn_centres(mini, weights, read)
    pairs = fold_pairs(folds, read, weights)
    describe = partial(make_manifest, len(centres.wide))
    description = speaker.cross_check(pairs, options.data, options.out, describe, channel_errors)
    speaker.write(speaker_pair_graph.build(mini, weights, centres), description, options.out)
    (options.out / "NOTICE").write_text(NOTICE)


if __name__ == "__main__":
    run(main)
