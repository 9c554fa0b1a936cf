"""The models of an installation: bundled ones, added ones, and the one in use.

Under the data directory, `models/<model id>/` is an added model, `models/current` holds the id of the model in use, and
`models/known/<model id>.json` the manifest of each model that ever scored. Every change is one rename of synced files,
so after a crash, and for concurrent readers, a change is either complete or absent. A model that is added again has
the same scores: its files replace the old ones one by one.
"""

import difflib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from infra import models
from infra.disk import sync, sync_all
from infra.models import manifests
from infra.models.manifests import AnyManifest
from infra.models.sources import Recipe
from infra.models.speech_manifest import SpeechManifest
from streams.models.manifest import DECODER, FILE, MAX_BYTES, Manifest
from streams.voice.overlap_manifest import OverlapManifest
from topics.errors import EngineError

BUNDLED: Final = Path(__file__).parent
#: Name prefixes of legal files, which are copied with an added model.
LEGAL: Final = ("NOTICE", "LICENSE", "LICENCE", "ATTRIBUTION")
#: Scratch directories of this age were left by killed processes.
OLD_S: Final = 86_400.0


class RegistryEntry(msgspec.Struct, frozen=True):
    """A model of the registry; without a `manifest`, `fault` says why it cannot be used."""

    directory: Path
    bundled: bool
    manifest: AnyManifest | None
    fault: str | None = None

    @property
    def model_id(self) -> str:
        """The model's id, or the name of its directory if it has no manifest."""
        return self.directory.name if self.manifest is None else self.manifest.model_id


class Registry:
    """The models under a data directory, and the bundled ones."""

    def __init__(self, data: Path) -> None:
        self._home = data / "models"

    def entries(self) -> tuple[RegistryEntry, ...]:
        """Return all models: first the bundled ones, then the added ones from the oldest to the newest."""
        added = [path for path in self._home.glob("[!.]*@*") if path.is_dir()]
        return (*bundled(), *(_entry(path, False) for path in sorted(added, key=_added_at)))

    def find(self, name: str) -> Path:
        """Return the directory of a model by id, by name (the newest added, else the bundled), or by path.

        The directory is not checked; the engine that loads it checks it.

        Raises:
            EngineError: there is no such model; one line with similar names.
        """
        entries = self.entries()
        for entry in reversed(entries):
            if name in (entry.model_id, entry.manifest and entry.manifest.name):
                return entry.directory
        if Path(name).is_dir():
            return Path(name)
        names = {entry.model_id for entry in entries} | {entry.manifest.name for entry in entries if entry.manifest}
        near = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.4)
        raise EngineError(f"there is no model {name}" + (f"; did you mean {', '.join(near)}?" if near else ""))

    def add(
        self, source: str | Path, *, name: str | None = None, recipe: Recipe | None = None, sha256: str | None = None
    ) -> RegistryEntry:
        """Check a model and copy it into the registry, replacing any model with the same id.

        `source` is a directory with a manifest, a .zip or .tar of one, or the http, https or file URL of such an
        archive; with a `recipe` also a bare graph. `name` replaces the name in the manifest.

        Raises:
            EngineError: it cannot be fetched or used; one line naming the fault. Nothing was added.
        """
        from infra.models import checks, sources

        with _scratch(self._home) as scratch:
            copy = scratch / "model"
            try:
                source_directory = sources.fetch(str(source), scratch, recipe=recipe, sha256=sha256)
                manifest = manifests.read(source_directory)
                if isinstance(manifest, SpeechManifest):
                    raise EngineError(
                        f"{manifest.name} is a speech-recognition model, and only sound-event and speaker models can "
                        "be added; run it as a server and set EARSHOT_SPEECH_URL"
                    )
                if isinstance(manifest, OverlapManifest):
                    raise EngineError(f"{manifest.name} is an overlap detector; only the bundled one is supported")
                if name is not None:
                    manifest = msgspec.structs.replace(manifest, name=name)
                _copy(source_directory, manifest, copy)
                checks.check(copy, known=self._checked_graphs())
            except EngineError as error:
                # Paths of the temporary copy mean nothing to the reader.
                inside = rf"{re.escape(str(scratch))}/(model|unpacked|converted)/"
                raise EngineError(re.sub(inside, "", str(error))) from error
            target = self._home / manifest.model_id
            sync_all(copy)
            if target.exists():
                for path in copy.iterdir():
                    path.replace(target / path.name)
                sync(target)
            else:
                copy.rename(target)
                sync(self._home)
        return _entry(target, False)

    def _checked_graphs(self) -> set[str]:
        """Return the SHA-256 of the graphs in the registry; all of them passed `graphs.check`."""
        found = [entry.manifest for entry in self.entries() if entry.manifest is not None]
        return {graph.sha256 for manifest in found for graph in manifests.graphs(manifest)}

    def remove(self, name: str) -> RegistryEntry:
        """Delete an added model and return its entry; results of its sessions stay readable.

        Raises:
            EngineError: it is bundled, in use, or does not exist.
        """
        directory = self.find(name)
        if not self._is_added(directory):
            raise EngineError(f"{name} was not added here, so it cannot be removed")
        entry = _entry(directory, False)
        if entry.model_id == self.current_id():
            raise EngineError(f"{entry.model_id} is in use; take another into use first: earshot models use NAME")
        with _scratch(self._home) as scratch:
            directory.rename(scratch / "model")
        return entry

    def use(self, name: str) -> RegistryEntry:
        """Check a sound-events model and put it into use, also for a service running on this data directory.

        Raises:
            EngineError: it does not exist, is of another kind, or fails a check; the model in use stays.
        """
        from infra.models import checks

        directory = self.find(name)
        bundled = directory.parent == BUNDLED
        if not bundled and not self._is_added(directory):
            raise EngineError(f"{name} is not a model of this service yet: earshot models add {name}")
        entry = _entry(directory, bundled)
        if not isinstance(entry.manifest, Manifest | None):
            raise EngineError(f"{entry.model_id} is not a model of sound events, which sessions need")
        checks.check(directory, known=None)
        _write(self._home / "current", entry.model_id.encode())
        return entry

    def current_id(self) -> str | None:
        """Return the id of the model in use; None if `use` was never called.

        If an upgrade replaced the bundled model in use, this is the new model of that name.
        """
        try:
            chosen = (self._home / "current").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        if not (self._home / chosen).is_dir():
            for entry in bundled():
                if entry.manifest is not None and entry.manifest.name == chosen.partition("@")[0]:
                    return entry.model_id
        return chosen

    def chosen_at(self) -> int:
        """Return when `use` put the model into use, in nanoseconds; 0 if it was never called."""
        try:
            return (self._home / "current").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def model_for_new_sessions(self, setting: str | None) -> str:
        """Return the model for new sessions, for `find`: the setting, else the model in use, else the default."""
        # The default's name is ambiguous: an added model may have the same.
        return setting or self.current_id() or str(models.directory())

    def remember(self, manifest: Manifest) -> None:
        """Keep the manifest of a model that scores, so that its windows stay readable after its removal."""
        path = self._remembered_path(manifest.model_id)
        if not path.exists():
            _write(path, msgspec.json.encode(manifest))

    def manifest_of(self, model_id: str) -> Manifest | None:
        """Return the manifest of a registered or remembered model; None for any other."""
        path = self._remembered_path(model_id)
        if path.name == f"{model_id}.json" and path.is_file():
            with suppress(msgspec.MsgspecError):
                return DECODER.decode(path.read_bytes())
        for entry in self.entries():
            if entry.model_id == model_id and isinstance(entry.manifest, Manifest):
                return entry.manifest
        return None

    def _is_added(self, directory: Path) -> bool:
        return directory.resolve().parent == self._home.resolve()

    def _remembered_path(self, model_id: str) -> Path:
        return self._home / "known" / f"{model_id}.json"


def bundled() -> list[RegistryEntry]:
    return [_entry(path.parent, True) for path in sorted(BUNDLED.glob(f"*/{FILE}"))]


def _entry(directory: Path, bundled: bool) -> RegistryEntry:
    try:
        manifest = manifests.read(directory)
    except EngineError as error:
        return RegistryEntry(directory, bundled, None, str(error))
    if not bundled and manifest.model_id != directory.name:
        return RegistryEntry(directory, bundled, None, f"{directory / FILE}: was changed after it was added")
    missing = [name for name in manifests.files(manifest) if not (directory / name).is_file()]
    if missing:
        return RegistryEntry(directory, bundled, None, f"{directory / missing[0]}: is not there")
    return RegistryEntry(directory, bundled, manifest)


def _added_at(directory: Path) -> tuple[int, str]:
    try:
        return (directory / FILE).stat().st_mtime_ns, directory.name
    except OSError:
        return 0, directory.name


def _copy(source: Path, manifest: AnyManifest, target: Path) -> None:
    """Copy the legal notices and the files in the manifest; refuse links, which could lead anywhere."""
    target.mkdir()
    legal = [path.name for path in source.iterdir() if path.name.upper().startswith(LEGAL)]
    for name in (*manifests.files(manifest), *legal):
        if (source / name).is_symlink() or not (source / name).is_file():
            raise EngineError(f"{source / name}: is not a plain file")
        if (source / name).stat().st_size > MAX_BYTES:
            raise EngineError(f"{source / name}: is larger than {MAX_BYTES} bytes")
        shutil.copyfile(source / name, target / name)
    manifests.write(target, manifest)


def _write(path: Path, content: bytes) -> None:
    """Replace a file atomically: the content is on disk before the file gets its name."""
    with _scratch(path.parent) as scratch:
        (scratch / path.name).write_bytes(content)
        sync(scratch / path.name)
        (scratch / path.name).replace(path)
        sync(path.parent)


@contextmanager
def _scratch(home: Path) -> Iterator[Path]:
    """Yield a temporary directory on the same disk; turn an OSError into an EngineError that names the file."""
    try:
        # The data directory, which may be made here, is private to its owner.
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        for left in home.glob(".scratch-*"):
            with suppress(FileNotFoundError):  # Another process may sweep too.
                if time.time() - left.stat().st_mtime > OLD_S:
                    shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".scratch-", dir=home) as scratch:
            yield Path(scratch)
    except OSError as error:
        raise EngineError(f"{error.filename or home}: {error.strerror or error}") from error
