"""The background of a model: embeddings of many other sounds, the default negatives for a new tag.

    python -m infra.lab.training.background --data DATA

writes the file for the bundled model's graph, and beside it the authors of the recordings. The values of an embedding
are 0 (nine of ten) to 6; their square roots are stored in 64 steps, which is finer than the differences between sounds.
The same input gives the same bytes.
"""

import argparse
import lzma
import sys
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from infra import models
from infra.lab.training import attribution, clips
from infra.lab.training.embeddings import embed
from streams.models.manifest import Manifest
from streams.models.protocol import Floats
from streams.models.sound_engine import OnnxSoundEngine
from topics.errors import EarshotError, EngineError

HERE: Final = Path(__file__).parent / "background"
ATTRIBUTION: Final = "ATTRIBUTION"
CREDIT: Final = """\
Background of new tags

The .npy.xz files hold embeddings, 1024 numbers a second, that infra/lab/training/background.py made with the model of
the recordings named below; no recording can be made of them again. Heads that `earshot models train-tag` learns against
them are learnt from these recordings too.

The sounds are of ESC-50 (K. J. Piczak, https://github.com/karolpiczak/ESC-50), {cc0} clips in the public domain (CC0)
and {by} under Creative Commons Attribution (CC-BY), taken from freesound.org.
The speech is of LibriSpeech (V. Panayotov, G. Chen, D. Povey, S. Khudanpur, https://www.openslr.org/12/), CC-BY-4.0,
{speech} utterances read by volunteers of LibriVox.

"""
#: Every second window is kept, at most this many of a recording.
STRIDE: Final = 2
MOST: Final = 6
STEPS: Final = 63
#: Largest value of an embedding: the activations are clipped there.
LARGEST: Final = 6.0

Numbers = npt.NDArray[np.intp]


class Background(msgspec.Struct, frozen=True):
    """Windows of many recordings, a second each, without overlap."""

    #: float32[windows, dimension].
    embeddings: Floats
    #: Number of the recording of each window, ascending, and of the recording's source: intp[windows].
    recording: Numbers
    source: Numbers
    #: The label of each recording.
    labels: tuple[str, ...]


def path_for(manifest: Manifest) -> Path:
    """Return the path of a model's background; embeddings are valid for one graph only."""
    return HERE / f"{manifest.graph.sha256[:16]}.npy.xz"


def read(manifest: Manifest) -> Background | None:
    """Return the background for a model, or None if its graph has none.

    Raises:
        EngineError: the file is damaged.
    """
    path = path_for(manifest)
    if not path.is_file():
        return None
    try:
        with lzma.open(path) as file:
            stored, numbers, labels = np.load(file), np.load(file), np.load(file)
    except (OSError, ValueError, EOFError, lzma.LZMAError) as error:
        raise EngineError(f"{path}: {error}") from error
    return Background(
        dequantise(stored), numbers[0].astype(np.intp), numbers[1].astype(np.intp), tuple(labels.tolist())
    )


def quantise(embeddings: Floats) -> npt.NDArray[np.uint8]:
    """Return the values of embeddings, 0 to `LARGEST`, as the bytes that are stored."""
    stored: npt.NDArray[np.uint8] = np.rint(np.sqrt(np.clip(embeddings / LARGEST, 0.0, 1.0)) * STEPS).astype(np.uint8)
    return stored


def dequantise(stored: npt.NDArray[np.uint8]) -> Floats:
    """Return the values of stored embeddings: the inverse of `quantise` except for rounding."""
    return np.square(stored.astype(np.float32) / STEPS) * np.float32(LARGEST)


def write(engine: OnnxSoundEngine, data: Path) -> Path:
    """Make the background of a model from the clips and utterances in a data directory; return its path.

    Raises:
        EngineError: their tables are missing.
        AudioError: one does not decode.
    """
    material = clips.read_clips(data)
    sources = {source: number for number, source in enumerate(dict.fromkeys((one.author, one.url) for one in material))}
    embeddings = [quantise(embed(engine, one.path).embeddings[::STRIDE][:MOST]) for one in material]
    numbers = np.repeat(
        [range(len(embeddings)), [sources[one.author, one.url] for one in material]],
        [len(one) for one in embeddings],
        axis=1,
    )
    path = path_for(engine.manifest)
    path.parent.mkdir(exist_ok=True)
    with lzma.open(path, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        np.save(file, np.concatenate(embeddings))
        np.save(file, numbers.astype(np.uint16))
        np.save(file, np.array([one.label for one in material]))
    return path


def main(arguments: list[str] | None = None) -> int:
    """Make the background from the command line; 2 when it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m infra.lab.training.background", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        path = write(OnnxSoundEngine(models.directory(models.YAMNET)), options.data)
        (HERE / ATTRIBUTION).write_text(attribution.notice(clips.read_clips(options.data), CREDIT), encoding="utf-8")
    except (OSError, EarshotError) as error:
        print(f"background: {error}", file=sys.stderr)
        return 2
    print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
