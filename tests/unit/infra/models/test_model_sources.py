"""Model sources: archives and URLs are untrusted, and forbidden content is refused in one line."""

import gzip
import hashlib
import io
import lzma
import os
import shutil
import struct
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from infra.lab.converters.recipes import write_model
from infra.models import archives, sources
from infra.models.registry import Registry
from streams.models.manifest import FILE, MANIFEST_BYTES
from tests.ports import serving
from tests.unit.streams.models import models
from topics.errors import EngineError

CED: Final = partial(write_model, "ced")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "tiny"
    directory.mkdir()
    return models.write(directory)


def zipped(source: Path, path: Path, top: str = "tiny/") -> Path:
    with zipfile.ZipFile(path, "w") as pack:
        for file in source.iterdir():
            pack.write(file, top + file.name)
    return path


def tarred(source: Path, path: Path, kind: str = "gztar", top: str = "tiny") -> Path:
    root = source.parent if top == source.name else source
    return Path(shutil.make_archive(str(path), kind, root_dir=root, base_dir=top))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("m.zip", zipped),
        ("m.zip", partial(zipped, top="")),
        ("m", partial(tarred, kind="tar")),
        ("m", partial(tarred, kind="gztar")),
        ("m", partial(tarred, kind="bztar")),
        ("m", partial(tarred, kind="xztar")),
        ("m", partial(tarred, top=".")),
        ("m", zipped),
    ],
)
def test_archive_in_any_format_is_added(
    source: Path, tmp_path: Path, name: str, pack: Callable[[Path, Path], Path]
) -> None:
    archive = pack(source, tmp_path / name)
    entry = Registry(tmp_path / "data").add(archive, sha256=sha256(archive))
    assert entry.model_id.startswith("tiny@")
    assert (entry.directory / "model.onnx").read_bytes() == (source / "model.onnx").read_bytes()
    assert len(list((tmp_path / "data" / "models").iterdir())) == 1


def zip_with(*members: tuple[str, bytes], mode: int = 0) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as pack:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            pack.writestr(info, content)
    return made.getvalue()


def tar_with(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as pack:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        pack.addfile(info, io.BytesIO())
    return made.getvalue()


EVIL = {
    "zip slip": (zip_with(("../evil", b"x")), "'../evil' leads out of it"),
    "deep zip slip": (zip_with(("a/../../evil", b"x")), "leads out of it"),
    "absolute zip": (zip_with(("/tmp/evil", b"x")), "leads out of it"),
    "drive": (zip_with(("C:evil", b"x")), "leads out of it"),
    "zip link": (zip_with(("link", b"/etc/passwd"), mode=0o120777), "'link' is not a plain file"),
    "zip device": (zip_with(("device", b""), mode=0o020666), "'device' is not a plain file"),
    "same name twice": (zip_with(("a/../b", b"x")), "leads out of it"),
    "file as folder": (zip_with(("a", b"x"), ("a/b", b"x")), "cannot be unpacked"),
    "too many": (zip_with(*((f"{n}", b"") for n in range(1001))), "holds more than 1000 files"),
    "too much": (zip_with(("a", bytes(600)), ("b", bytes(600))), "holds more than 1000 bytes"),
    "cut short": (zip_with(("a", bytes(500)))[:-30], "is neither a .zip nor a .tar"),
    "another content": (zip_with(("a", b"aaaaaaaaaaaa")).replace(b"aaaaaaaaaaaa", b"aaaaaaaaaaab"), "Bad CRC-32"),
    "tar slip": (tar_with("../evil"), "'../evil' leads out of it"),
    "absolute tar": (tar_with("/tmp/evil"), "leads out of it"),
    "tar link": (tar_with("link", tarfile.SYMTYPE, "/etc/passwd"), "'link' is not a plain file"),
    "hard link": (tar_with("link", tarfile.LNKTYPE, "/etc/passwd"), "'link' is not a plain file"),
    "tar device": (tar_with("device", tarfile.CHRTYPE), "'device' is not a plain file"),
    "fifo": (tar_with("fifo", tarfile.FIFOTYPE), "'fifo' is not a plain file"),
    "nothing": (b"", "is neither a .zip nor a .tar"),
    "text": (b"model" * 1000, "is neither a .zip nor a .tar"),
}


@pytest.mark.parametrize(("content", "fault"), EVIL.values(), ids=EVIL)
def test_rejected_archives(tmp_path: Path, content: bytes, fault: str) -> None:
    archive = tmp_path / "evil.zip"
    archive.write_bytes(content)
    with pytest.raises(EngineError, match=fault) as refusal:
        archives.unpack(archive, tmp_path / "in" / "target", most=1000)
    assert str(refusal.value).startswith("evil.zip: ")
    assert "\n" not in str(refusal.value)
    inside = [path for path in tmp_path.rglob("*") if path.is_file() and path != archive]
    assert all(path.is_relative_to(tmp_path / "in" / "target") for path in inside)


def pax(records: bytes, size: int | None = None) -> bytes:
    """Return an extended header, possibly claiming a wrong size."""
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, len(records) if size is None else size
    return header.tobuf(tarfile.GNU_FORMAT) + records + bytes(-len(records) % 512)


def long_name(length: int) -> bytes:
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, length
    return header.tobuf() + b"a" * length + bytes(-length % 512)


def members(count: int) -> bytes:
    return tarfile.TarInfo("a").tobuf() * count


def gnu_sparse() -> bytes:
    header = bytearray(tarfile.TarInfo("sparse").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"00000000000\0" * 2
    header[483:495] = b"77777777777\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def xz_with_a_dictionary_of_4_gigabytes() -> bytes:
    packed = bytearray(lzma.compress(members(1)))
    packed[16] = 40  # the size of the dictionary, which the block header's checksum covers
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    return bytes(packed)


def crowded_zip(count: int) -> bytes:
    """Return a directory of many entries for one file."""
    with zipfile.ZipFile(made := io.BytesIO(), "w") as pack:
        pack.writestr("a", b"")
    one = made.getvalue()
    start, end = one.index(b"PK\1\2"), one.index(b"PK\5\6")
    directory = one[start:end] * count
    locator = b"PK\6\7" + struct.pack("<LQL", 0, start + len(directory), 1)
    end64 = b"PK\6\6" + struct.pack("<QHHLLQQQQ", 44, 45, 45, 0, 0, count, count, len(directory), start)
    last = b"PK\5\6" + struct.pack("<HHHHLLH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return one[:start] + directory + end64 + locator + last


def packed_zip(method: int) -> bytes:
    with zipfile.ZipFile(made := io.BytesIO(), "w", method) as pack:
        pack.writestr("a", bytes(1 << 20))
    return made.getvalue()


#: A fault of the first header may look like no archive, depending on the version of Python.
UNREADABLE = "cannot be unpacked|too long|neither a .zip nor a .tar"
TOO_LONG = "headers are too long, or it holds too many files"
RUDE: dict[str, tuple[Callable[[], bytes], str]] = {
    "extended header of 7 GB": (lambda: pax(b"", 7 << 30), TOO_LONG),
    "endless extended headers": (lambda: pax(b"11 path=aa\n") * 100_000, UNREADABLE),
    "name of 100 MB": (lambda: long_name(100 << 20), TOO_LONG),
    "very many files": (lambda: members(200_000), f"more than 1000 files|cannot be unpacked|{TOO_LONG}"),
    "sparse": (gnu_sparse, "'sparse' is not a plain file"),
    "file that says it has 7 GB": (
        lambda: pax(b"19 size=7000000000\n") + members(1),
        "cannot be unpacked: cut short|more than 1000 bytes",
    ),
    "gzip of zeros": (lambda: gzip.compress(bytes(48 << 20)), "holds more than"),
    "xz that wants 4 GB": (xz_with_a_dictionary_of_4_gigabytes, "cannot be unpacked: Memory usage limit"),
    "gzip cut short": (lambda: gzip.compress(os.urandom(5000))[:-20], "cannot be unpacked: cut short"),
    "crowded zip": (lambda: crowded_zip(200_000), TOO_LONG),
    "zip of zeros": (lambda: packed_zip(zipfile.ZIP_DEFLATED), "holds more than 1000 bytes"),
    "bzip2 in zip": (lambda: packed_zip(zipfile.ZIP_BZIP2), "'a' is not packed with deflate"),
    "lines in a name": (lambda: zip_with(("a\n\x1b[2J" + "b" * 600, b"x")), r"'a\\n\\x1b\[2Jb+' is too long a name"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("made", "fault"), RUDE.values(), ids=RUDE)
def test_malicious_archives_cost_little_memory_and_time(tmp_path: Path, made: Callable[[], bytes], fault: str) -> None:
    archive = tmp_path / "rude.tar"
    archive.write_bytes(made())
    (tmp_path / "in").mkdir()
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(EngineError, match=rf"^rude.tar: .*({fault})"):
        archives.unpack(archive, tmp_path / "in" / "target", most=1000)
    took, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20
    assert took < 60, "5 s without the tracing of memory"
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["target"], "nothing temporary is left"


def test_oversized_or_malformed_manifest_is_rejected(source: Path, tmp_path: Path) -> None:
    (source / FILE).write_bytes(b" " * (MANIFEST_BYTES + 1))
    with pytest.raises(EngineError, match=r"manifest.json: is larger than 4194304 bytes"):
        Registry(tmp_path / "data").add(source)
    for content in (b"[" * 100_000, b"[]", b'{"kind": "\xff"}', b'{"kind": {}}', b'{"kind": "lottery"}'):
        (source / FILE).write_bytes(content)
        with pytest.raises(EngineError, match=r"manifest.json: "):
            Registry(tmp_path / "data").add(source)


@pytest.mark.parametrize("names", [("a.txt",), ("a/b/manifest.json",), ("a/manifest.json", "b/manifest.json")])
def test_archive_without_exactly_one_model_is_rejected(tmp_path: Path, names: tuple[str, ...]) -> None:
    archive = tmp_path / "m.zip"
    archive.write_bytes(zip_with(*((name, b"{}") for name in names)))
    with pytest.raises(EngineError, match=r"m.zip: holds (no|2) manifest.json"):
        Registry(tmp_path / "data").add(archive)


def test_invalid_sources_are_rejected(source: Path, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "data")
    refused: dict[str, tuple[str | Path, dict[str, Any]]] = {
        "there is no such file or directory": (tmp_path / "none", {}),
        "No such file": (tmp_path, {}),
        "is a directory; a recipe": (source, {"recipe": CED}),
        "a bare graph needs --recipe": (source / "model.onnx", {}),
        "there is no recipe cake": (source / "model.onnx", {"recipe": partial(write_model, "cake")}),
        "a recipe goes with a graph": (source / FILE, {"recipe": CED}),
        "its SHA-256 is": (source / "model.onnx", {"recipe": CED, "sha256": "0" * 64}),
        "not YAMNet's classification model": (source / "model.onnx", {"recipe": partial(write_model, "yamnet")}),
    }
    for fault, (given, options) in refused.items():
        with pytest.raises(EngineError, match=fault):
            registry.add(given, **options)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "www").mkdir()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "www")))) as made:
        yield f"http://127.0.0.1:{made.server_port}"


def test_url_requires_matching_digest(
    source: Path, tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path / "data")
    digest = sha256(zipped(source, tmp_path / "www" / "m.zip"))
    assert registry.add(f"{server}/m.zip?token=1#sha256={digest}").model_id.startswith("tiny@")
    assert registry.add(f"{server}/m.zip", sha256=digest.upper()).model_id.startswith("tiny@")
    assert registry.add(f"file://{tmp_path}/www/m.zip#sha256={digest}", name="other").model_id.startswith("other@")
    refused = {
        f"{server}/m.zip": "m.zip: needs its SHA-256",
        f"{server}/m.zip#md5={digest}": "m.zip: needs its SHA-256",
        f"{server}/m.zip#sha256={'0' * 64}": f"its SHA-256 is {digest}",
        f"{server}/none.zip#sha256={digest}": "none.zip: cannot be fetched: HTTP Error 404",
        f"{server.replace('http', 'https')}/m.zip#sha256={digest}": "cannot be fetched",
        f"http://user:secret@127.0.0.1:1/m.zip#sha256={digest}": r"http://user:\*\*\*@127.0.0.1:1/m.zip: cannot be",
        f"file:///none/m.zip#sha256={digest}": "cannot be fetched",
        f"http://[/m.zip#sha256={digest}": "is not a URL",
    }
    for url, fault in refused.items():
        with pytest.raises(EngineError, match=fault) as refusal:
            registry.add(url)
        assert "\n" not in str(refusal.value)
    monkeypatch.setattr(sources, "MAX_BYTES", 100)
    with pytest.raises(EngineError, match=r"m.zip: is larger than 100 bytes"):
        registry.add(f"{server}/m.zip", sha256=digest)
