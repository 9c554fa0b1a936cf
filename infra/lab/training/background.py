"""The background of a model: embeddings of many other sounds, the default negatives for a new tag.

    python -m infra.lab.training.background --data DATA

writes the files for the bundled models' graphs, and beside them the authors of the recordings. The values of a YAMNet
embedding are 0 (nine of ten) to 6; their square roots are stored in 64 steps, which is finer than the differences
between sounds. Those of a second model lie around 0 and are stored in 255 steps. The same input gives the same bytes.
"""

import argparse
import lzma
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from infra import models
from infra.lab.training import attribution, clips
from infra.lab.training.embeddings import EmbeddedWindows, embed, embed_looks
from streams.models.manifest import Manifest
from streams.models.protocol import Floats
from streams.models.sound_engine import OnnxSoundEngine
from topics.errors import EarshotError, EngineError

HERE: Final = Path(__file__).parent / "background"
ATTRIBUTION: Final = "ATTRIBUTION"
CREDIT: Final = """\
Background of new tags

The .npy.xz files hold embeddings that infra/lab/training/background.py made of the recordings named below with the
bundled models: 1024 numbers a second, or 192 for two or five seconds. No recording can be made of them again. Heads
that `earshot models train-tag` learns against them are learnt from these recordings too.

The sounds are of ESC-50 (K. J. Piczak, https://github.com/karolpiczak/ESC-50), {cc0} clips in the public domain (CC0)
and {by} under Creative Commons Attribution (CC-BY), taken from freesound.org.
The speech is of LibriSpeech (V. Panayotov, G. Chen, D. Povey, S. Khudanpur, https://www.openslr.org/12/), CC-BY-4.0,
{speech} utterances read by volunteers of LibriVox.

"""
#: Windows of the first model, or looks of the second one: of a stream, or of a recording.
LookKind = Literal["", "stream", "recording"]
LOOKS: Final[tuple[LookKind, ...]] = ("stream", "recording")
#: Every second window or look of a stream is kept, which do not overlap, at most this many of a recording.
STRIDES: Final[Mapping[LookKind, int]] = {"": 2, "stream": 2, "recording": 1}
MOST: Final = 6
STEPS: Final = 63
#: Largest value of an embedding: the activations are clipped there.
LARGEST: Final = 6.0
#: Hardly any value of an embedding of a look is larger.
LARGEST_OF_LOOKS: Final = 10.0

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


def path_for(manifest: Manifest, look: LookKind = "") -> Path:
    """Return the path of the background of a model, or of its second one's looks; it is for one graph only."""
    if look and manifest.second is not None:
        return HERE / f"{manifest.second.graph.sha256[:16]}-{look}.npy.xz"
    return HERE / f"{manifest.graph.sha256[:16]}.npy.xz"


def read(manifest: Manifest, look: LookKind = "") -> Background | None:
    """Return the background for a model, or of its second one's looks, or None if there is none.

    Raises:
        EngineError: the file is damaged.
    """
    path = path_for(manifest, look)
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


def quantise(embeddings: Floats, look: LookKind = "") -> npt.NDArray[np.uint8 | np.int8]:
    """Return the values of embeddings, 0 to `LARGEST`, or those of looks around 0, as the bytes that are stored."""
    if look:
        around: npt.NDArray[np.int8] = np.rint(np.clip(embeddings / LARGEST_OF_LOOKS, -1.0, 1.0) * 127).astype(np.int8)
        return around
    stored: npt.NDArray[np.uint8] = np.rint(np.sqrt(np.clip(embeddings / LARGEST, 0.0, 1.0)) * STEPS).astype(np.uint8)
    return stored


def dequantise(stored: npt.NDArray[np.uint8 | np.int8]) -> Floats:
    """Return the values of stored embeddings: the inverse of `quantise` except for rounding."""
    if stored.dtype == np.int8:
        return stored.astype(np.float32) * np.float32(LARGEST_OF_LOOKS / 127)
    return np.square(stored.astype(np.float32) / STEPS) * np.float32(LARGEST)


def write(engine: OnnxSoundEngine, data: Path, look: LookKind = "") -> Path:
    """Make a background of a model from the clips and utterances in a data directory; return its path.

    Raises:
        EngineError: their tables are missing.
        AudioError: one does not decode.
    """
    material = clips.read_clips(data)
    sources = {source: number for number, source in enumerate(dict.fromkeys((one.author, one.url) for one in material))}

    def embedded(path: Path) -> EmbeddedWindows:
        return embed_looks(engine, path, look == "recording") if look else embed(engine, path)

    embeddings = [quantise(embedded(one.path).embeddings[:: STRIDES[look]][:MOST], look) for one in material]
    numbers = np.repeat(
        [range(len(embeddings)), [sources[one.author, one.url] for one in material]],
        [len(one) for one in embeddings],
        axis=1,
    )
    path = path_for(engine.manifest, look)
    path.parent.mkdir(exist_ok=True)
    with lzma.open(path, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        np.save(file, np.concatenate(embeddings))
        np.save(file, numbers.astype(np.uint16))
        np.save(file, np.array([one.label for one in material]))
    return path


def main(arguments: list[str] | None = None) -> int:
    """Make the backgrounds from the command line; 2 when they cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m infra.lab.training.background", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        engine = OnnxSoundEngine(models.directory())
        paths = [write(engine, options.data, look) for look in STRIDES]
        (HERE / ATTRIBUTION).write_text(attribution.notice(clips.read_clips(options.data), CREDIT), encoding="utf-8")
    except (OSError, EarshotError) as error:
        print(f"background: {error}", file=sys.stderr)
        return 2
    for path in paths:
        print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
