"""Recipes: inputs and outputs of published graphs, to turn a bare file into a model. README.md tells how to get one.

The original front ends pad the edges of a recording or normalise over clips of ten seconds. These do not: each frame
equals one of the original's, and a patch contains the frames that lie wholly in its second.
"""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from infra import models
from infra.lab.converters import audioset
from infra.models import manifests
from streams.models.manifest import FILE, Graph, LogMel, Manifest, Output, Waveform
from topics.errors import EngineError

GRAPH: Final = "model.onnx"


class Recipe(msgspec.Struct, frozen=True):
    """A model with AudioSet's 527 classes."""

    source: str
    licence: str
    input: LogMel | Waveform
    output: Output


_PANNS: Final = Output(scores="clipwise_output", embedding="embedding")
RECIPES: Final = {
    "panns-cnn14": Recipe("https://zenodo.org/record/3987831", "CC-BY-4.0", Waveform(32_000, 32_000), _PANNS),
    "panns-cnn14-16k": Recipe("https://zenodo.org/record/3987831", "CC-BY-4.0", Waveform(16_000, 16_000), _PANNS),
    "efficientat": Recipe(
        "https://github.com/fschmid56/EfficientAT",
        "MIT",
        LogMel(
            sample_rate=32_000,
            frames=98,
            bands=128,
            window=800,
            hop=320,
            fft=1024,
            low_hz=0.0,
            high_hz=15_000.0,
            offset=1e-5,
            pre_emphasis=0.97,
            taper="hann-symmetric",
            power=2,
            mean=-4.5,
            std=5.0,
            layout="bands-frames",
        ),
        Output(scores="logits", embedding="features", activation="sigmoid"),
    ),
    # The original limits the logarithm to 120 dB below the loudest frame of a clip, which only digital silence reaches.
    # This front end does not.
    "ced": Recipe(
        "https://github.com/RicherMans/CED",
        "Apache-2.0",
        LogMel(
            sample_rate=16_000,
            frames=96,
            bands=64,
            window=512,
            hop=160,
            fft=512,
            low_hz=0.0,
            high_hz=8000.0,
            offset=1e-10,
            power=2,
            mel_slopes="hertz",
            guard="floor",
            log="dB",
            layout="bands-frames",
        ),
        Output(scores="prob"),
    ),
}
YAMNET: Final = "yamnet"
YAMNET_SHA256: Final = "10c95ea3eb9a7bb4cb8bddf6feb023250381008177ac162ce169694d05c317de"
NAMES: Final = (YAMNET, *RECIPES)


def write_model(name: str, graph: Path, target: Path) -> None:
    """Convert a graph file by a recipe and write the model into the directory `target`.

    Raises:
        EngineError: There is no such recipe, or it expects another file; one line naming the fault.
    """
    if name == YAMNET:
        _convert_yamnet(graph, target)
        return
    if name not in RECIPES:
        raise EngineError(f"there is no recipe {name}, only {', '.join(NAMES)}")
    if graph.suffix.lower() != ".onnx":
        raise EngineError(f"{graph.name}: the recipe {name} takes an .onnx file")
    recipe = RECIPES[name]
    classes, tags = audioset.classes_and_tags()
    content = graph.read_bytes()
    graph_file = Graph(GRAPH, hashlib.sha256(content).hexdigest())
    manifest = Manifest(
        name, "1", recipe.licence, recipe.source, graph_file, recipe.input, classes, tags, output=recipe.output
    )
    (target / GRAPH).write_bytes(content)
    (target / FILE).write_bytes(msgspec.json.encode(manifest))


def _convert_yamnet(tflite_file: Path, target: Path) -> None:
    content = tflite_file.read_bytes()
    if hashlib.sha256(content).hexdigest() != YAMNET_SHA256:
        raise EngineError(f"{tflite_file.name}: not YAMNet's classification model, whose SHA-256 is {YAMNET_SHA256}")
    from infra.lab.converters import convert_yamnet
    from infra.lab.converters.tflite_file import layers

    graph = convert_yamnet.build(layers(content)).SerializeToString(deterministic=True)
    bundled = manifests.read(models.directory(YAMNET))
    for file in manifests.files(bundled)[1:]:
        (target / file).write_bytes((models.directory(YAMNET) / file).read_bytes())
    manifest = msgspec.structs.replace(bundled, graph=Graph(GRAPH, hashlib.sha256(graph).hexdigest()))
    (target / GRAPH).write_bytes(graph)
    (target / FILE).write_bytes(msgspec.json.encode(manifest))
    (target / "NOTICE").write_text(convert_yamnet.NOTICE, encoding="utf-8")
