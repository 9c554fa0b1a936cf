"""Sources of models: a directory, an archive of one, a bare graph with a recipe, or a URL of either file."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from infra.models import archives
from infra.urls import redact_url
from streams.models.manifest import FILE, MAX_BYTES
from topics.errors import EngineError

SCHEMES: Final = ("http://", "https://", "file://")
GRAPHS: Final = (".onnx", ".tflite")
TIMEOUT_SECONDS: Final = 30

#: Makes a model from a bare graph, in an existing directory.
Recipe = Callable[[Path, Path], None]


def fetch(source: str, scratch: Path, *, recipe: Recipe | None, sha256: str | None) -> Path:
    """Return a directory with a manifest: `source` itself, or one under `scratch` with its files.

    Raises:
        EngineError: it does not exist, has another SHA-256, or holds no model; one line.
    """
    path = Path(source)
    if path.is_dir():
        if recipe is not None or sha256 is not None:
            raise EngineError(f"{source}: is a directory; a recipe or a SHA-256 goes with a file")
        return path
    if source.startswith(SCHEMES):
        path, sha256 = _download(source, scratch, sha256)
    elif not path.is_file():
        raise EngineError(f"{source}: there is no such file or directory")
    if sha256 is not None:
        _check_sha256(path, sha256)
    if path.suffix.lower() in GRAPHS:
        return _apply_recipe(path, recipe, scratch / "converted")
    if recipe is not None:
        raise EngineError(f"{path.name}: a recipe goes with a graph ({', '.join(GRAPHS)})")
    archives.unpack(path, scratch / "unpacked")
    return _manifest_directory(path, scratch / "unpacked")


def _download(url: str, scratch: Path, sha256: str | None) -> tuple[Path, str]:
    """Download a URL; return the file and the SHA-256 that it must have."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise EngineError(f"{redact_url(url)}: is not a URL: {error}") from error
    shown = redact_url(parts._replace(fragment="", query="").geturl())
    name, _, digest = parts.fragment.partition("=")
    if sha256 is None and name == "sha256":
        sha256 = digest
    if sha256 is None:
        raise EngineError(f"{shown}: needs its SHA-256, as --sha256 or as #sha256=... behind the URL")
    path = scratch / f"download{Path(unquote(parts.path)).suffix}"
    url = parts._replace(fragment="").geturl()
    left = MAX_BYTES
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, path.open("wb") as file:
            while block := answer.read(archives.BLOCK):
                left -= len(block)
                if left < 0:
                    raise EngineError(f"{shown}: is larger than {MAX_BYTES} bytes")
                file.write(block)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise EngineError(f"{shown}: cannot be fetched: {error}") from error
    return path, sha256


def _check_sha256(path: Path, sha256: str) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256.strip().lower():
        raise EngineError(f"{path.name}: its SHA-256 is {digest}, not {sha256}")


def _manifest_directory(archive: Path, unpacked: Path) -> Path:
    """Return the only directory with a manifest: the top of the archive, or a directory in it."""
    directories = [path.parent for path in (unpacked / FILE, *unpacked.glob(f"*/{FILE}")) if path.is_file()]
    if len(directories) != 1:
        raise EngineError(f"{archive.name}: holds {len(directories) or 'no'} {FILE}")
    return directories[0]


def _apply_recipe(graph: Path, recipe: Recipe | None, target: Path) -> Path:
    if recipe is None:
        raise EngineError(f"{graph.name}: a bare graph needs --recipe; infra/models/README.md lists them")
    if graph.stat().st_size > MAX_BYTES:
        raise EngineError(f"{graph.name}: is larger than {MAX_BYTES} bytes")
    target.mkdir()
    recipe(graph, target)
    return target
