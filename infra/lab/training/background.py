"""Makes `infra/teaching/background/*.npy.xz`: embeddings of many other sounds, for the graphs of the bundled models.

    python -m infra.lab.training.background --data DATA

writes the files for the graphs of the bundled models, and the authors of the recordings beside them. The same input
gives the same bytes.
"""

import lzma
from pathlib import Path
from typing import Final

import numpy as np

from infra import models
from infra.lab.script import parser, run
from infra.lab.training import attribution, clips
from infra.lab.training.embeddings import embed, embed_contexts
from infra.teaching.background import ATTRIBUTION, HERE, STRIDES, ContextKind, path_for, quantise
from infra.teaching.heads import EmbeddedWindows
from streams.models.sound_engine import OnnxSoundEngine

CREDIT: Final = f"""\
Background of new tags

The .npy.xz files hold embeddings that infra/lab/training/background.py made of the recordings named below with the
bundled models: 1024 numbers a second, or 192 for two or five seconds. No recording can be made of them again. Heads
that `earshot models train-tag` learns against them are learnt from these recordings too.
{attribution.SOURCES}"""
#: Maximum windows or contexts kept per recording.
MOST: Final = 6


def write(engine: OnnxSoundEngine, data: Path, context: ContextKind = "") -> Path:
    """Make a background of a model from the clips and utterances in a data directory; return its path.

    Raises:
        EngineError: Their tables are missing.
        AudioError: A recording does not decode.
    """
    material = clips.read_clips(data)
    sources = {source: number for number, source in enumerate(dict.fromkeys((one.author, one.url) for one in material))}

    def embedded(path: Path) -> EmbeddedWindows:
        return embed_contexts(engine, path, context == "recording") if context else embed(engine, path)

    embeddings = [quantise(embedded(one.path).embeddings[:: STRIDES[context]][:MOST], context) for one in material]
    numbers = np.repeat(
        [range(len(embeddings)), [sources[one.author, one.url] for one in material]],
        [len(one) for one in embeddings],
        axis=1,
    )
    path = path_for(engine.manifest, context)
    path.parent.mkdir(exist_ok=True)
    with lzma.open(path, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        np.save(file, np.concatenate(embeddings))
        np.save(file, numbers.astype(np.uint16))
        np.save(file, np.array([one.label for one in material]))
    return path


def main() -> None:
    options = parser(__doc__, "--data").parse_args()
    engine = OnnxSoundEngine(models.directory())
    paths = [write(engine, options.data, context) for context in STRIDES]
    (HERE / ATTRIBUTION).write_text(attribution.notice(clips.read_clips(options.data), CREDIT), encoding="utf-8")
    for path in paths:
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    run(main)
