"""Runs the scripts of the lab."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from infra.models import manifests
from infra.models.manifests import AnyManifest
from topics.errors import EarshotError


def parser(description: str | None, *paths: str) -> argparse.ArgumentParser:
    """Return a parser of these required paths, options and arguments."""
    spec = sys.modules["__main__"].__spec__
    prog = None if spec is None else f"python -m {spec.name}"
    made = argparse.ArgumentParser(prog, description=description)
    for path in paths:
        made.add_argument(path, type=Path).required = True
    return made


def run(main: Callable[[], None]) -> None:
    """Run a script; after an error of ours or of a file, print it in one line and exit with status 2."""
    try:
        main()
    except (OSError, EarshotError) as error:
        print(f"{Path(main.__code__.co_filename).stem}: {error}", file=sys.stderr)
        sys.exit(2)


def write_model(out: Path, manifest: AnyManifest, files: Mapping[str, bytes], notice: str) -> None:
    """Write a model into the directory `out`: its manifest, its files and its notice."""
    out.mkdir(parents=True, exist_ok=True)
    for name, content in (*files.items(), ("NOTICE", notice.encode())):
        (out / name).write_bytes(content)
    manifests.write(out, manifest)
