"""Fuzz targets: seeds, and a function of the input; any exception is a finding."""

import asyncio
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from app.http.bodies import decode
from app.http.multipart import Form
from app.http.queries import IntegerParameter, query_parameters
from app.sessions.requests import AudioChunk, CreateSession, PredictRequest, UpdateSession, chunk_audio
from app.sessions.tokens import PageTokens
from infra.logs import Redactor
from infra.models import archives, manifests
from streams.audio import wav
from streams.audio.decode import decode_chunk, open_file
from streams.models.manifest import FILE
from streams.models.protocol import Floats
from tests.audio import encoded, muxed
from tests.conftest import ROOT
from tests.fuzz import edge, engines
from topics import apikeys, media, record_codec, rows
from topics.errors import AudioError, EarshotError, EngineError, RecordError
from topics.folding import Arrival
from topics.jobs import payloads
from topics.jobs import result_rules as job_result_rules
from topics.jobs import rows as job_rows
from topics.jobs import rules as job_rules
from topics.sessions import commands as session_commands
from topics.sessions import rows as session_rows

CORPUS: Final = Path(__file__).parent / "corpus"
EXAMPLES: Final = ROOT / "tests" / "examples"
MANIFESTS: Final = ("infra/models/sed_mini", "infra/models/speaker_mini")
MEDIA: Final = (
    *(b"audio/" + kind for kind in b"wav mp3 ogg flac aiff mp4 webm aac".split()),
    b"application/octet-stream",
    b"audio/x-raw; rate=16000; format=s16le",
)
SESSION: Final = "3TqZ0aLxPmV7cW9yB2nRkD4s"

Run = Callable[[bytes], None]


class FuzzTarget(msgspec.Struct, frozen=True):
    """A part of the service, named like its corpus."""

    name: str
    seeds: Callable[[], Iterable[bytes]]
    #: Returns the function that runs an input; called in the process that will run it.
    prepare: Callable[[], Run]
    #: Share of the time of a run of all targets.
    weight: float = 1.0

    def all_seeds(self) -> list[bytes]:
        return [*self.seeds(), *(path.read_bytes() for path in sorted((CORPUS / self.name).glob("*")))]


def _examples() -> list[bytes]:
    return [path.read_bytes() for path in sorted(EXAMPLES.rglob("*")) if path.is_file() and path.suffix != ".py"]


CODECS: Final = (
    record_codec.decode_command, record_codec.decode_job_command, record_codec.decode_job_result,
    record_codec.decode_parked,
)  # fmt: skip


def _records(data: bytes) -> None:
    for read in CODECS:
        with suppress(RecordError):
            # Compared as bytes, because NaN differs from itself.
            written = record_codec.encode(read(data))
            assert record_codec.encode(read(written)) == written, "not as it was written"


ROWS: Final = (
    rows.audio, rows.receipt, session_rows.head, session_rows.opened, session_rows.block, session_rows.newest,
    job_rows.head, job_rows.accepted,
)  # fmt: skip


def _rows(data: bytes) -> None:
    for read in ROWS:
        with suppress(RecordError):
            read(data)
    for payload in payloads.PORTIONS.values():
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            msgspec.msgpack.decode(data, type=payload)


ARRIVAL: Final = Arrival(1 << 40, 1_700_000_000_000, b"d" * 16)


def _folds(data: bytes) -> None:
    """Fold a record into a head: whatever is on the log, an agent must go on."""
    first, _, second = data.partition(b"|EARSHOT|")
    with suppress(RecordError):
        head = session_rows.head(first)
        with suppress(RecordError):
            session_commands.fold_command(head, record_codec.decode_command(second), ARRIVAL)
    with suppress(RecordError):
        job = job_rows.head(first)
        with suppress(RecordError):
            job_rules.fold_command(job, record_codec.decode_job_command(second), ARRIVAL)
        with suppress(RecordError):
            job_result_rules.fold_result(job, record_codec.decode_job_result(second))


def _fold_seeds() -> Iterator[bytes]:
    files = _examples()
    for number, first in enumerate(files):
        for second in files[number % 3 :: 3]:
            yield first + b"|EARSHOT|" + second


TOKENS: Final = PageTokens(b"s" * 32)


def _tokens(data: bytes) -> None:
    text = data.decode("latin-1")
    with suppress(EarshotError):
        assert TOKENS.issue(SESSION, *TOKENS.read(SESSION, text)) == text, "a token that nobody issued"


def _token_seeds() -> list[bytes]:
    return [TOKENS.issue(SESSION, offset, 10).encode() for offset in (0, 7, 2**63)]


def _queries(data: bytes) -> None:
    found = query_parameters({"query_string": data})
    for name in ("offset", "count", "sequence"):
        with suppress(EarshotError):
            assert 0 <= IntegerParameter(name, "", 1, 0, 1024).read(found) <= 1024


DECODERS: Final = [msgspec.json.Decoder(kind) for kind in (CreateSession, UpdateSession, AudioChunk, PredictRequest)]


def _bodies(data: bytes) -> None:
    for decoder in DECODERS:
        with suppress(EarshotError):
            decode(decoder, data)
    with suppress(EarshotError):
        assert len(chunk_audio(data, 1000)) <= 1000


BODIES: Final = (
    b'{"type":"stream","content_type":"audio/x-raw; rate=16000; format=s16le"}',
    b'{"type":"file","content_type":"audio/mp3","total_size":4000,"file_name":"a","file_length":1.5,"metadata":{"a":"b"},'
    b'"tags_sensitivity":{"Siren":-2},"default_sensitivity":1,"window_hop":"0.5s"}',
    b'{"data":"UklGRgAAAABXQVZFZm10IA=="}',
    b'{"data":"UklG\\r\\nRgAA"}',
    b'{"data":"AAAA","sequence":3}',
    b'{"make_readonly":true}',
)


def _forms(data: bytes) -> None:
    kind, _, body = data.partition(b"\n")
    taken = []
    with suppress(EarshotError):
        form = Form(kind, "audio", lambda piece: taken.append(len(piece)), "options", ("b[]", "c"))
        for start in range(0, len(body), 97):
            form.feed(body[start : start + 97])
        form.close()
        assert sum(len(value) for name in ("b[]", "c") for value in form.values(name)) <= len(body)
    assert sum(taken) <= len(body)


FORMS: Final = (
    b'multipart/form-data; boundary=b\n--b\r\nContent-Disposition: form-data; name="options"\r\n\r\n{"a":1}\r\n'
    b'--b\r\nContent-Disposition: form-data; name="b[]"\r\n\r\nword\r\n'
    b'--b\r\nContent-Disposition: form-data; name="audio"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    b"RIFF\r\n--b--\r\n",
    b'multipart/form-data; boundary="x y"\n--x y\r\n'
    b"Content-Disposition: form-data; name*=utf-8''audio\r\n\r\nz\r\n--x y--",
)


def _media(data: bytes) -> None:
    with suppress(EarshotError):
        media.parse(data.decode("latin-1"))


SECRET: Final = "QZ-chosen-key-of-an-operator"
REDACTOR: Final = Redactor([SECRET])


def _keys(data: bytes) -> None:
    text = data.decode("latin-1")
    apikeys.well_formed(text)
    apikeys.fault(text)
    apikeys.digest(text)
    shown = REDACTOR(None, "info", {"event": text, text: [data, {text: text}]})
    assert SECRET not in json.dumps(shown, ensure_ascii=False)


def _audio() -> Run:
    def check(samples: Floats) -> None:
        assert samples.ndim == 1
        assert len(samples) > 0
        assert np.isfinite(samples).all(), "samples that are no numbers"

    def run(data: bytes) -> None:
        kind, _, content = data.partition(b"\n")
        try:
            declared = media.parse(kind.decode("latin-1"))
        except EarshotError:
            return
        with suppress(AudioError):
            check(decode_chunk(content, declared).samples)
        with suppress(AudioError):
            for block in open_file(io.BytesIO(content), declared).blocks(cpu_seconds=3.0):
                check(block)
        if (plain := wav.read_plain(content)) is not None:
            check(plain.samples)

    return run


@cache
def _audio_seeds() -> tuple[bytes, ...]:
    rng = np.random.default_rng(0)
    noise = (rng.normal(0, 3000, 3000)).astype(np.int16)
    forms = ("WAV", "RF64", "FLAC", "AIFF", "AU", "CAF", "OGG", "MP3")
    seeds = [f"audio/{form.lower()}\n".encode() + encoded(noise, 16000, form) for form in forms]
    seeds.insert(7, b"audio/opus\n" + encoded(noise, 16000, "OGG", "OPUS"))
    seeds.append(b"audio/mp3\n" + b"ID3\x04\0\0\0\0\x07\x68".ljust(10 + 1000, b"\0") + encoded(noise, 16000, "MP3"))
    seeds.append(b"audio/x-raw; rate=16000; format=s16le\n" + noise[:200].tobytes())
    seeds.append(b"audio/x-raw; rate=8000; format=f32le; channels=2\n" + noise[:200].astype("<f4").tobytes())
    pcm = noise / np.float32(32768)
    coded = [
        (b"audio/mp4", "ipod", "aac", {}),
        (b"audio/mp4", "mp4", "aac", {"movflags": "frag_keyframe+empty_moov", "frag_duration": "50000"}),
        (b"audio/webm", "webm", "libopus", {}),
        (b"audio/matroska", "matroska", "flac", {}),
        (b"audio/wma", "asf", "wmav2", {}),
        (b"audio/aac", "adts", "aac", {}),
        (b"audio/wavpack", "wv", "wavpack", {}),
        (b"audio/ogg", "ogg", "flac", {}),
        (b"audio/caf", "caf", "alac", {}),
        (b"audio/wav", "w64", "pcm_s16le", {}),
        (b"audio/wav", "wav", "adpcm_ms", {}),
    ]
    seeds += [kind + b"\n" + muxed(pcm, 16000, form, coder, options=options) for kind, form, coder, options in coded]
    # Two files in a row, tags around one, a gap, and a length of 0.
    once = [seed.partition(b"\n")[2] for seed in seeds[:9] + seeds[10:]]
    seeds += [b"application/octet-stream\n" + one + two for one, two in pairwise(once)]
    tagged = b"APETAGEX" + bytes(range(24)) + b"TAG".ljust(128, b"\0")
    seeds += [b"application/octet-stream\nID3\4\0\x10\0\0\1\0" + bytes(138) + one + tagged for one in once]
    seeds += [b"video/webm\n" + muxed(pcm, 16000, "matroska", "flac", gap=(0.1, length)) for length in (5.0, 9999.0)]
    seeds.append(b"audio/wav\n" + encoded(noise, 16000)[:40] + bytes(4) + noise.tobytes())
    real = [*sorted((ROOT / "tests" / "data" / "sound").glob("*.ogg"))[:2], ROOT / "infra/examples/smoke-alarm.flac"]
    seeds += [b"audio/%s\n" % path.suffix[1:].encode() + path.read_bytes()[:20_000] for path in real]
    return tuple(seeds)


def _manifests() -> Run:
    scratch = Path(tempfile.mkdtemp(prefix="earshot-fuzz-"))

    def run(data: bytes) -> None:
        (scratch / FILE).write_bytes(data)
        with suppress(EngineError):
            manifest = manifests.read(scratch)
            assert all(Path(name).name == name for name in manifests.files(manifest))
            _ = manifest.model_id

    return run


def _manifest_seeds() -> list[bytes]:
    from tests.unit.streams.models.models import MANIFEST

    return [msgspec.json.encode(MANIFEST), *((ROOT / home / FILE).read_bytes() for home in MANIFESTS)]


def _archives() -> Run:
    scratch = Path(tempfile.mkdtemp(prefix="earshot-fuzz-"))
    target, archive = scratch / "in" / "target", scratch / "archive"

    def run(data: bytes) -> None:
        archive.write_bytes(data)
        (scratch / "in").mkdir()
        try:
            with suppress(EngineError):
                archives.unpack(archive, target, most=1 << 20)
            assert sum(path.lstat().st_size for path in target.rglob("*") if path.is_file()) <= 1 << 20
            assert {path.name for path in scratch.iterdir()} == {"in", "archive"}
            assert {path.name for path in (scratch / "in").iterdir()} <= {"target"}
        finally:
            shutil.rmtree(scratch / "in")

    return run


def _archive_seeds() -> list[bytes]:
    seeds = []
    files: Mapping[str, bytes] = {
        "tiny/manifest.json": b'{"name":"tiny"}',
        "tiny/model.onnx": b"m" * 700,
        "NOTICE": b"",
    }
    for mode in ("w:", "w:gz", "w:bz2", "w:xz"):
        for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
            with tarfile.open(fileobj=(made := io.BytesIO()), mode=mode, format=form) as pack:
                for name, content in {**files, "long/" * 3 + "n" * 150: b"x"}.items():
                    info = tarfile.TarInfo(name)
                    info.size, info.mtime = len(content), 1.5
                    pack.addfile(info, io.BytesIO(content))
            seeds.append(made.getvalue())
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(made := io.BytesIO(), "w", method) as pack:
            for name, content in files.items():
                pack.writestr(name, content)
        seeds.append(made.getvalue())
    return seeds


def _edge() -> Run:
    served = edge.Edge()
    loop = asyncio.new_event_loop()
    return lambda data: loop.run_until_complete(served.answer(data))


TARGETS: Final = (
    FuzzTarget("records", _examples, lambda: _records, 2.0),
    FuzzTarget("rows", _examples, lambda: _rows, 2.0),
    FuzzTarget("folds", _fold_seeds, lambda: _folds, 2.0),
    FuzzTarget("tokens", _token_seeds, lambda: _tokens),
    FuzzTarget("queries", lambda: [b"offset=1&count=10", b"next_token=abc%20d&count=+1", b"a=b&&=c"], lambda: _queries),
    FuzzTarget("bodies", lambda: BODIES, lambda: _bodies, 2.0),
    FuzzTarget("forms", lambda: FORMS, lambda: _forms, 2.0),
    FuzzTarget("media", lambda: MEDIA, lambda: _media),
    FuzzTarget("keys", lambda: [b"esp_" + b"a" * 36, b"x-api-key: abc", SECRET.encode()], lambda: _keys),
    FuzzTarget("answers", engines.answer_seeds, engines.answers),
    FuzzTarget("scenes", engines.scene_seeds, engines.scenes),
    FuzzTarget("manifests", _manifest_seeds, _manifests, 2.0),
    FuzzTarget("archives", _archive_seeds, _archives, 3.0),
    FuzzTarget("audio", _audio_seeds, _audio, 5.0),
    FuzzTarget("edge", edge.seeds, _edge, 6.0),
)


def by_name(name: str) -> FuzzTarget:
    """Return a target.

    Raises:
        KeyError: There is none.
    """
    return {target.name: target for target in TARGETS}[name]
