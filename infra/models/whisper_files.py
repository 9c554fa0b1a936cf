"""The files of Whisper models: their location and integrity."""

import hashlib
from pathlib import Path
from typing import Final

from infra import models
from infra.models import speech_manifest
from infra.models.speech_manifest import SpeechManifest
from streams.models.manifest import FILE
from topics.errors import EngineError

#: Directories beside this file, by model name; `make tiny` makes the second one.
DIRECTORIES: Final = {"whisper-base": "whisper_base", "whisper-tiny.en": "whisper_tiny_en"}


def find(name: str) -> tuple[Path, SpeechManifest]:
    """Return the directory of a Whisper model and its manifest; the files are not checked.

    Raises:
        EngineError: it was not made here, or its manifest is wrong.
    """
    directory = Path(models.__file__).with_name(DIRECTORIES[name])
    if name != "whisper-base" and not (directory / FILE).is_file():
        raise EngineError(f"{name} is not here: make tiny")
    return directory, speech_manifest.read(directory)


def check(directory: Path, manifest: SpeechManifest) -> None:
    """Check the files of a model against its manifest.

    Raises:
        EngineError: one is missing, or has another SHA-256.
    """
    for file in (manifest.graph, *manifest.files):
        path = directory / file.file
        try:
            with path.open("rb") as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise EngineError(f"{path}: {error.strerror}") from error
        if sha256 != file.sha256:
            raise EngineError(f"{path}: not the file that the manifest was made for (its SHA-256 differs)")
