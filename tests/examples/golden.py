"""One golden file of every record and row: the bytes of a version stay readable for ever.

`python -m tests.examples.golden` writes the files that are missing and touches no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from topics import catalog, codec, rows
from topics.lifecycle import Head, Receipt, State
from topics.records import Chunk, Cursor, Deleted, Expired, Failed, Opened, Parked, Record, Scored, Sealed
from topics.rows import Block, ChunkRow

HERE: Final = Path(__file__).parent

SESSION: Final = b"3TqZ0aLxPmV7cW9yB2nRkD4s"

OPENED: Final = Opened(
    "c-1",
    "file",
    "audio/wav",
    "p-1",
    window_ms=2000,
    hop_ms=1000,
    total_size=320_044,
    default_sensitivity=-1,
    tags_sensitivity={"Siren": 2},
    metadata={"place": "roof"},
    file_name="siren.wav",
    file_length=10.0,
)
MODEL: Final = "yamnet@0123abcd-456def"

#: Ends the names of records that were written before sessions named their model: read for ever, written no more.
BEFORE: Final = "-before-models"

RECORDS: Final[Mapping[str, Mapping[str, Record]]] = {
    catalog.COMMANDS: {
        "open": msgspec.structs.replace(OPENED, model=MODEL),
        "open-before-models": OPENED,
        "open-short-before-models": Opened("c-1", "stream", "audio/x-raw; rate=22050; format=s16", "p-1", 1000, 500),
        "chunk": Chunk("c-2", 7, b"\x00\x01\xfe\xff", idempotency=b"0123456789abcdef"),
        "chunk-predict": Chunk("c-3", None, b"\x00\x01", predict=True),
        "seal": Sealed("c-4"),
        "delete": Deleted("c-5"),
        "expire": Expired("sweep", 3_600_000, 1_700_003_600_000),
    },
    catalog.RESULTS: {
        "scores": Scored(31, MODEL, b"\x80\x00\xff\x7f", Cursor(12, 11, 176_400, 44_100), 9, final=True, tags=2),
        "scores-before-models": Scored(
            31, "yamnet@0123abcd", b"\x80\x00\xff\x7f", Cursor(12, 11, 176_400, 44_100), 9, final=True
        ),
        "scores-short-before-models": Scored(0, "yamnet@0123abcd", b"", Cursor()),
        "fail": Failed("chunk 3: the data holds no audio"),
    },
    catalog.COMMANDS_PARKED: {
        "parked": Parked(catalog.COMMANDS, 3, 41, "RecordError: the record has no value", SESSION, b""),
    },
    catalog.RESULTS_PARKED: {
        "parked": Parked(catalog.RESULTS, 0, 2**40, "RecordError: not a record", b"\xff\x00", b"noise"),
    },
}

HEAD: Final = Head(
    "file",
    320_044,
    touched=1_700_000_000_123,
    command=77,
    state=State.READONLY,
    next=4,
    received=320_044,
    predicts=False,
    error="chunk 3: the data holds no audio",
    windows=9,
    cursor=Cursor(4, 3, 8000, 16_000),
    finished=True,
)

ROWS: Final[Mapping[str, msgspec.Struct]] = {
    "head": HEAD,
    "head-new": Head("stream", None, touched=1, command=0),
    "opened": msgspec.structs.replace(OPENED, model=MODEL),
    "opened-before-models": OPENED,
    "chunk": ChunkRow(2**33, 16_384, bytes(range(16))),
    "block": Block("yamnet@0123abcd", b"\x80\x00\xff\x7f"),
    "receipt": Receipt(b"0123456789abcdef", bytes(range(16))),
}

#: How a file of each kind is read again.
READERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    catalog.COMMANDS: codec.decode_command,
    catalog.RESULTS: codec.decode_result,
    catalog.COMMANDS_PARKED: codec.decode_parked,
    catalog.RESULTS_PARKED: codec.decode_parked,
}
ROW_READERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "head": rows.head,
    "opened": rows.opened,
    "chunk": rows.chunk,
    "block": rows.block,
    "receipt": rows.receipt,
}


def folder(topic: str) -> Path:
    """Return where the examples of a topic lie: `<topic>/v1`."""
    return HERE / topic.removesuffix(".v1") / "v1"


def readable(record: msgspec.Struct) -> str:
    """Return a record as JSON with the names of its fields; bytes in hex."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    cursor = fields.get("cursor")
    if isinstance(cursor, msgspec.Struct):
        fields["cursor"] = {name: getattr(cursor, name) for name in cursor.__struct_fields__}
    named = {"record": type(record).__name__, **fields}
    plain = {name: value.hex() if isinstance(value, bytes) else value for name, value in named.items()}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def files() -> dict[Path, tuple[msgspec.Struct, bytes]]:
    """Return the path of every example (without suffix), with its record and its bytes."""
    found: dict[Path, tuple[msgspec.Struct, bytes]] = {
        folder(topic) / name: (record, codec.encode(record))
        for topic, records in RECORDS.items()
        for name, record in records.items()
    }
    found |= {folder(catalog.CHANGELOG) / name: (row, rows.encode(row)) for name, row in ROWS.items()}
    return found


def main() -> None:
    """Write the files that are missing."""
    for path, (record, data) in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.with_suffix(".msgpack").exists():
            path.with_suffix(".msgpack").write_bytes(data)
            path.with_suffix(".json").write_text(readable(record))


if __name__ == "__main__":
    main()
