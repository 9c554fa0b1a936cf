"""Manifests of every kind of model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from infra.models import speech_manifest
from infra.models.speech_manifest import SpeechManifest
from streams.models import manifest as sound
from streams.models import runtime
from streams.models.manifest import FILE, Graph, Heads, Manifest
from streams.voice import overlap_manifest
from streams.voice import speaker_manifest as voice
from streams.voice.overlap_manifest import OverlapManifest
from streams.voice.speaker_manifest import SpeakerManifest
from topics.errors import EngineError

AnyManifest = Manifest | SpeakerManifest | OverlapManifest | SpeechManifest


_READERS: Final[dict[str, Callable[[Path], AnyManifest]]] = {
    "sound-events": sound.read,
    "speaker-embedding": voice.read,
    "overlap": overlap_manifest.read,
    "speech-recognition": speech_manifest.read,
}


class _Kind(msgspec.Struct):
    kind: str = "sound-events"


_KIND: Final = msgspec.json.Decoder(_Kind)


def read(directory: Path) -> AnyManifest:
    """Read and check the manifest in `directory`.

    Raises:
        EngineError: it is missing, of an unknown kind, or wrong; one line naming the file and the fault.
    """
    path = directory / FILE
    kind = sound.read_as(path, _KIND, lambda _: iter(())).kind
    if kind not in _READERS:
        *some, last = _READERS
        raise EngineError(f"{path}: kind is {kind!r}, expected {', '.join(some)} or {last}")
    return _READERS[kind](directory)


def write(directory: Path, manifest: AnyManifest) -> None:
    """Write a manifest, indented; equal content gives equal bytes."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (directory / FILE).write_bytes(text + b"\n")


def kind(manifest: AnyManifest) -> str:
    return str(type(manifest).__struct_config__.tag)


def graphs(manifest: AnyManifest) -> tuple[Graph, ...]:
    """Return the graphs of a model: two if it has a second model."""
    second = manifest.second if isinstance(manifest, Manifest) else None
    return (manifest.graph,) if second is None else (manifest.graph, second.graph)


def check_files(directory: Path, manifest: Manifest) -> None:
    """Compare the files of a sound model with its manifest, without loading it.

    Raises:
        EngineError: one is missing, or has another SHA-256; one line naming it.
    """
    for file in _parts(manifest):
        runtime.read_file(directory / file.file, file.sha256)


def _parts(manifest: Manifest) -> Iterator[Graph | Heads]:
    second = manifest.second
    others = () if second is None else (second.graph, second.stream.heads, second.recording.heads)
    return (file for file in (manifest.graph, manifest.heads, *others) if file is not None)


def files(manifest: AnyManifest) -> tuple[str, ...]:
    """Return the names of the files that a manifest refers to, in its directory."""
    match manifest:
        case Manifest():
            return tuple(file.file for file in _parts(manifest))
        case SpeechManifest(files=beside):
            return manifest.graph.file, *(file.file for file in beside)
        case _:
            return (manifest.graph.file,)
