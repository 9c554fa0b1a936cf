"""The file of sources: what the agent listens to, and where it sends it."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from infra.errors import Unfit
from infra.secret_files import read_secret, secret
from infra.urls import is_http, local_url

MOST_SOURCES: Final = 256
LONGEST_NAME: Final = 100
#: Bytes of the names and values of a source's labels, as the service takes them.
LABEL_BYTES: Final = 4096
#: Bytes of them for the name of a file.
FILE_BYTES: Final = 1024
SCHEMES: Final = ("rtsp", "rtsps", "http", "https")
GIGABYTE: Final = 10**9
#: What a camera's URL may hold besides user information: `?password=...`, `/user=admin_password=...`.
_SECRET: Final = re.compile(r"(?i)(pass|pwd|token|auth|key|secret)\w*=([^&#/]*)")
_KINDS: Final = ("microphone", "url", "folder")


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A microphone, a stream or a folder. `labels` go with each of its sessions.

    Attributes:
        microphone: name of a device of ALSA, such as `default` or `plughw:1,0`.
        url: of a stream; it may hold a password, so nothing shows it: see `place`.
        folder: whose files are sent, each once.
        sensitivity: of all tags, from -2, which reports the most sounds, to 2.
        model: sound model by name; by default the service's own.
    """

    name: str
    microphone: str | None = None
    url: str | None = None
    folder: str | None = None
    labels: Mapping[str, str] = {}
    sensitivity: int | None = None
    model: str | None = None

    @property
    def place(self) -> str:
        """What may be shown of where it is."""
        if self.url is None:
            return self.folder or f"microphone {self.microphone}"
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")

    @property
    def key(self) -> str:
        """The name of its folder in the spool."""
        return f"{re.sub(r'[^A-Za-z0-9]+', '-', self.name)[:40]}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    def secrets(self) -> Iterator[str]:
        """Yield passwords of its URL, as they are written and as they are meant."""
        if self.url is not None:
            found = [urlsplit(self.url).password, *(match[2] for match in _SECRET.finditer(self.url))]
            for one in filter(None, found):
                yield from {one, unquote(one)}

    def __repr__(self) -> str:
        return f"<source {self.name}>"


class _Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    labels: Mapping[str, str] = {}
    sensitivity: int | None = None
    model: str | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: tuple[Source, ...]
    url: str | None = None
    key_file: str | None = None
    spool: str = "spool"
    spool_gigabytes: float = 2.0
    defaults: _Defaults = _Defaults()


class Sources(msgspec.Struct, frozen=True):
    """What a file of sources says: the service, its project key, the spool and its bound, and the sources by name."""

    url: str
    key: str
    spool: Path
    spool_bytes: int
    sources: Mapping[str, Source]

    def secrets(self) -> list[str]:
        """Return what no line of the log may show."""
        return [self.key, *(one for source in self.sources.values() for one in source.secrets())]


def read(path: Path, environment: Mapping[str, str] = os.environ) -> Sources:
    """Read a file of sources. Paths in it are relative to its folder.

    Raises:
        Unfit: the file is wrong, or others may read its passwords; the message is one sentence.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            parsed = msgspec.convert(tomllib.load(file), _File)
    except OSError as error:
        raise Unfit(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unfit(f"{path} is not UTF-8") from None
    except msgspec.ValidationError as error:
        raise Unfit(f"{path}: {_sentence(error)}") from None
    except (ValueError, RecursionError) as error:
        raise Unfit(f"{path}: {error}") from None
    if len(parsed.sources) > MOST_SOURCES:
        raise Unfit(f"{path} has {len(parsed.sources)} sources; an agent takes at most {MOST_SOURCES}")
    if not parsed.sources:
        raise Unfit(f"{path} has no sources: add at least one [[sources]]")
    sources = [_checked(one, parsed.defaults, path) for one in parsed.sources]
    name, uses = Counter(one.name for one in sources).most_common(1)[0]
    if uses > 1:
        raise Unfit(f"{path} has {uses} sources named {name!r}: give each its own name")
    if stat.S_IMODE(mode) & 0o077 and any(True for one in sources for _ in one.secrets()):
        raise Unfit(f"{path} holds passwords, and other users may read it: run chmod 600 {shlex.quote(str(path))}")
    if not 0 < parsed.spool_gigabytes < float("inf"):
        raise Unfit(f"{path}: spool_gigabytes must be a number above 0")
    return Sources(
        _service(parsed.url, path, environment),
        _key(parsed.key_file, path, environment),
        _place(parsed.spool, path),
        int(parsed.spool_gigabytes * GIGABYTE),
        {one.name: one for one in sources},
    )


def _sentence(error: msgspec.ValidationError) -> str:
    text, _, place = str(error).partition(" - at `$")
    place = place.strip("`.")
    known = text.replace("Object contains unknown field", "unknown field").replace(
        "Object missing required field", "no"
    )
    return f"{place}: {known}" if place else known


def _checked(source: Source, defaults: _Defaults, path: Path) -> Source:
    """Return a source with the defaults for what it leaves out.

    Raises:
        Unfit: a field is wrong.
    """
    name = source.name
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise Unfit(f"{path}: the name {name[:LONGEST_NAME]!r} must have 1 to {LONGEST_NAME} printable characters")
    where = f"{path}: source {name!r}"
    if len([kind for kind in _KINDS if getattr(source, kind)]) != 1:
        raise Unfit(f"{where} needs one of microphone, url and folder")
    if source.url is not None:
        _check_url(source.url, where)
    sensitivity = defaults.sensitivity if source.sensitivity is None else source.sensitivity
    if sensitivity is not None and not -2 <= sensitivity <= 2:
        raise Unfit(f"{where}: sensitivity must be from -2 to 2")
    labels = {**defaults.labels, **source.labels}
    if len(msgspec.json.encode(labels)) > (room := LABEL_BYTES - FILE_BYTES * (source.folder is not None)):
        raise Unfit(f"{where}: its labels have more than {room} bytes")
    if not (source.microphone or "").isprintable():
        raise Unfit(f"{where}: the name of the microphone must be printable")
    folder = source.folder and str(_place(source.folder, path))
    changes: dict[str, Any] = {"folder": folder, "labels": labels, "sensitivity": sensitivity}
    return msgspec.structs.replace(source, **changes, model=source.model or defaults.model)


def _place(name: str, path: Path) -> Path:
    """Return where a path in the file leads; raise Unfit if nowhere."""
    with suppress(RuntimeError):  # There is no such user.
        if "\0" not in name:
            return path.absolute().parent / Path(name).expanduser()
    raise Unfit(f"{path}: {name!r} is no path")


def _check_url(url: str, where: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        # The URL is not shown: it may hold a password.
        raise Unfit(f"{where}: url must begin with {', '.join(f'{one}://' for one in SCHEMES)} and name a host")


def _service(url: str | None, path: Path, environment: Mapping[str, str]) -> str:
    port = environment.get("EARSHOT_PORT", "").lstrip("0") or "8000"
    url = url or environment.get("EARSHOT_URL") or local_url(environment.get("EARSHOT_HOST") or "127.0.0.1", port)
    if not is_http(url):
        raise Unfit(f"{path}: url must be that of the service, such as http://127.0.0.1:8000")
    return url


def _key(file: str | None, path: Path, environment: Mapping[str, str]) -> str:
    if file is not None:
        return read_secret("project_key_file", _place(file, path))
    if found := secret("project_key", environment):
        return found
    raise Unfit(f"{path}: no project key: set key_file to a file that holds it, or EARSHOT_PROJECT_KEY")
