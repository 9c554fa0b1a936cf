"""One golden file for each kind of record and row.

Beside the bytes, a JSON file has what they mean, each field by its name. `write` adds an example.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from topics import catalog, record_codec, rows, service_time
from topics.jobs import rows as job_rows
from topics.sessions import rows as session_rows

HERE: Final = Path(__file__).parent

#: Decoder for each kind of file.
READERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    catalog.COMMANDS: record_codec.decode_command,
    catalog.JOB_COMMANDS: record_codec.decode_job_command,
    catalog.JOB_RESULTS: record_codec.decode_job_result,
    catalog.COMMANDS_PARKED: record_codec.decode_parked,
    catalog.JOB_COMMANDS_PARKED: record_codec.decode_parked,
    catalog.JOB_RESULTS_PARKED: record_codec.decode_parked,
}
ROW_READERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "head": session_rows.head,
    "opened": session_rows.opened,
    "chunk": rows.audio,
    "block": session_rows.block,
    "newest": session_rows.newest,
    "anchor": session_rows.anchor,
    "note": session_rows.note,
    "name": session_rows.name,
    "receipt": rows.receipt,
    "jobhead": job_rows.head,
    "accepted": job_rows.accepted,
    "served": service_time.served,
    "seen": service_time.seen,
}


def folder(topic: str) -> Path:
    """Return the directory of a topic's examples: `<topic>/v1`."""
    return HERE / topic.removesuffix(".v1") / "v1"


def topic(path: Path) -> str:
    """Return the topic of an example."""
    return next(topic for topic in (*READERS, catalog.CHANGELOG) if path.parent == folder(topic))


def examples(*topics: str) -> list[Path]:
    """Return the paths of the examples of topics, without suffix."""
    return [path.with_suffix("") for topic in topics for path in sorted(folder(topic).glob("*.msgpack"))]


def reader(path: Path) -> Callable[[bytes], Any]:
    """Return the decoder of an example."""
    of = topic(path)
    return ROW_READERS[path.name.split("-")[0]] if of == catalog.CHANGELOG else READERS[of]


def read(path: Path) -> Any:
    """Return the record or row that an example's bytes mean today."""
    return reader(path)(path.with_suffix(".msgpack").read_bytes())


def readable(record: msgspec.Struct) -> str:
    """Return a record as JSON with its field names; bytes in hex."""
    plain = {"record": type(record).__name__, **_named(record)}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def _named(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: _named(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_named(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def write(path: Path, record: Any) -> None:
    """Write both files of a new example; one that exists is never replaced."""
    data = rows.encode(record)
    with path.with_suffix(".msgpack").open("xb") as file:
        file.write(data)
    path.with_suffix(".json").write_text(readable(record))
