"""One golden file for each kind of record and row: the bytes of a version stay readable forever.

`python -m tests.examples.golden` writes missing files and changes no other.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from topics import catalog, record_codec, rows
from topics.folding import Receipt
from topics.hearing import Hearing
from topics.jobs import rows as job_rows
from topics.jobs.options import Options, Service
from topics.jobs.records import (
    Accepted,
    Billed,
    Finished,
    Overdue,
    Part,
    Portion,
    Removed,
    Source,
    Started,
    Stopped,
)
from topics.jobs.rules import Entry, EntryState, JobHead, JobState
from topics.records import Parked, Record
from topics.rows import AudioRow
from topics.sessions import rows as session_rows
from topics.sessions.records import (
    Begun,
    Chunk,
    Cursor,
    Deleted,
    Expired,
    Failed,
    Metered,
    Opened,
    Scored,
    Sealed,
    Tuned,
)
from topics.sessions.rows import Block
from topics.sessions.rules import SessionHead, SessionState
from topics.sessions.sounds import SoundRule, SoundRules

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

#: Suffixes of records and rows from older versions: before openings named their process, before sounds had rules,
#: before the rules could change, before projects had their own sounds, before results marked a substitute model, and
#: before ids were marked as derived. Still read, never written.
BEFORE: Final = (
    "-before-lives",
    "-before-sounds",
    "-before-tuned",
    "-before-hearing",
    "-before-notes",
    "-before-derived",
)

#: Two heads of an embedding of two numbers.
HEARING: Final = Hearing(("Kettle",), bytes(range(24)), keeps=True)
STANDING_IN: Final = msgspec.structs.replace(HEARING, stands_in=True)

ACCEPTED: Final = Accepted(
    "c-7",
    "u-1",
    2,
    "p-1",
    "o-1",
    Options(
        sound_event_detection=True,
        speech_analysis=True,
        audio_insights=True,
        caption=True,
        speaker_profile=True,
        translation=True,
        speaker_diarization=False,
        speech_model="whisper-large",
        speech_lang="en",
        translation_target_lang="ko",
        audio_insights_prompt="one sentence",
    ),
    Source("audio/wav", "wav", 320_044, 16_000, 2, filename="siren.wav", declared="audio/x-wav"),
    MODEL,
    bytes(range(16)),
)

RULED: Final = msgspec.structs.replace(
    OPENED,
    model=MODEL,
    organization="o-1",
    sound_rule=SoundRule(2, 3, 1500),
    sound_rules={"Siren": SoundRule(margin_ms=10_000)},
)
KEPT: Final = msgspec.structs.replace(
    ACCEPTED,
    options=msgspec.structs.replace(
        ACCEPTED.options, word_times=True, speech_prompt="Anna", min_speakers=2, max_speakers=4
    ),
    keep_audio_ms=3_600_000,
)
SHORT_ACCEPTED: Final = Accepted("c-7", "u-1", 1, "p", "o", Options(), Source("", "wav", 1, 8000, 1), MODEL, b"")

SCORED: Final = Scored(31, MODEL, b"\x80\x00\xff\x7f", Cursor(12, 11, 176_400, 44_100), 9, final=True, tags=2)

RECORDS: Final[Mapping[str, Mapping[str, Record]]] = {
    catalog.COMMANDS: {
        "open": msgspec.structs.replace(RULED, model=f"{MODEL}+Kettle", hearing=STANDING_IN, derived=True),
        "open-before-derived": msgspec.structs.replace(RULED, model=f"{MODEL}+Kettle", hearing=STANDING_IN),
        "open-before-notes": msgspec.structs.replace(RULED, model=f"{MODEL}+Kettle", hearing=HEARING),
        "open-before-hearing": RULED,
        "open-before-tuned": RULED,
        "open-before-sounds": msgspec.structs.replace(OPENED, model=MODEL, organization="o-1"),
        "chunk": Chunk("c-2", 7, b"\x00\x01\xfe\xff", idempotency=b"0123456789abcdef"),
        "chunk-predict": Chunk("c-3", None, b"\x00\x01", predict=True),
        "seal": Sealed("c-4"),
        "delete": Deleted("c-5"),
        "expire": Expired("sweep", 3_600_000, 1_700_003_600_000),
    },
    catalog.RESULTS: {
        "scores": msgspec.structs.replace(SCORED, model=f"{MODEL}+Kettle", looks=b"\x7f\x81\x00\x00"),
        "scores-before-hearing": SCORED,
        "tune": Tuned("c-9", SoundRule(2, 3, 1500), {"Siren": SoundRule(margin_ms=10_000)}),
        "tune-one": Tuned("c-9", sound_rules={}),
        "meter": Metered(2400),
        "meter-predict": Metered(7, predicts=True),
        "fail": Failed("chunk 3: the data holds no audio"),
        "begin": Begun(9, 4, 2, ("01234567", "89abcdef")),
        "begin-before-lives": Begun(9, 4, 2),
    },
    catalog.JOB_COMMANDS: {
        "part": Part("c-6", "u-1", 1, b"\x00\x01\xfe\xff"),
        "accept": msgspec.structs.replace(KEPT, model=f"{MODEL}+Kettle", hearing=STANDING_IN),
        "accept-before-notes": msgspec.structs.replace(KEPT, model=f"{MODEL}+Kettle", hearing=HEARING),
        "accept-before-hearing": KEPT,
        "accept-short": SHORT_ACCEPTED,
        "accept-short-before-notes": SHORT_ACCEPTED,
        "accept-short-before-hearing": SHORT_ACCEPTED,
        "remove": Removed("c-8"),
        "overdue": Overdue("sweep", 2_592_000_000, 1_702_592_000_000),
    },
    catalog.JOB_RESULTS: {
        "start": Started(Service.SOUND, "r-1", 2, 5, ("01234567", "89abcdef")),
        "start-before-lives": Started(Service.SOUND, "r-1", 2, 5),
        "stop": Stopped(Service.SOUND, "r-1", 1, ("01234567",)),
        "stop-before-lives": Stopped(Service.SOUND, "r-1", 1),
        "portion": Portion(Service.SOUND, "r-1", 3, b"\x80\x00\xff\x7f", 0.25),
        "portion-short": Portion(Service.CAPTION, "r-2", 0, b""),
        "finish": Finished(
            Service.SPEECH, "r-3", 4, "Engine API error: 500", 10_000, "whisper-large", ("no voice activity",)
        ),
        "finish-short": Finished(Service.TRANSLATION, "r-4", 1),
        "bill": Billed((Service.SOUND, Service.INSIGHTS)),
    },
    catalog.COMMANDS_PARKED: {
        "parked": Parked(catalog.COMMANDS, 3, 41, "RecordError: the record has no value", SESSION, b""),
    },
    catalog.RESULTS_PARKED: {
        "parked": Parked(catalog.RESULTS, 0, 2**40, "RecordError: not a record", b"\xff\x00", b"noise"),
    },
    catalog.JOB_COMMANDS_PARKED: {
        "parked": Parked(catalog.JOB_COMMANDS, 1, 5, "RecordError: not a record", SESSION, b"noise"),
    },
    catalog.JOB_RESULTS_PARKED: {
        "parked": Parked(catalog.JOB_RESULTS, 2, 6, "RecordError: not a record", SESSION, b"noise"),
    },
}

HEAD: Final = SessionHead(
    "file",
    320_044,
    touched=1_700_000_000_123,
    command=77,
    state=SessionState.READONLY,
    next=4,
    received=320_044,
    predicts=False,
    error="chunk 3: the data holds no audio",
    windows=9,
    cursor=Cursor(4, 3, 8000, 16_000),
    finished=True,
)

JOB_HEAD: Final = JobHead(
    JobState.PROCESSING,
    command=77,
    touched=1_700_000_000_123,
    upload="u-1",
    parts=2,
    received=320_044,
    created=1_700_000_000_123,
    entries=(
        Entry(
            Service.SOUND,
            EntryState.SUCCESS,
            "r-1",
            portions=4,
            done=1.0,
            audio_ms=10_000,
            model=MODEL,
            warnings=("one channel is silent",),
            revision=6,
            billed=True,
        ),
        Entry(Service.SPEECH, EntryState.ERROR, "r-3", error="Engine API error: 500", revision=7),
        Entry(Service.INSIGHTS, revision=1),
    ),
    revision=7,
    digest=bytes(range(16)),
)

COUNTED_JOB_HEAD: Final = msgspec.structs.replace(
    JOB_HEAD,
    entries=(
        *JOB_HEAD.entries[:2],
        Entry(Service.INSIGHTS, EntryState.RUNNING, "r-4", portions=1, done=0.5, revision=1, begun=2, furthest=3),
    ),
)

KILLED_JOB_HEAD: Final = msgspec.structs.replace(
    COUNTED_JOB_HEAD,
    entries=(*JOB_HEAD.entries[:2], msgspec.structs.replace(COUNTED_JOB_HEAD.entries[2], kills=5)),
)
LIVED_JOB_HEAD: Final = msgspec.structs.replace(
    KILLED_JOB_HEAD,
    keep_audio_ms=3_600_000,
    entries=(
        *JOB_HEAD.entries[:2],
        msgspec.structs.replace(KILLED_JOB_HEAD.entries[2], begun_by=("01234567", "89abcdef")),
    ),
)
BEGUN_HEAD: Final = msgspec.structs.replace(HEAD, error=None, finished=False, begun=2, metered=9)

_ROWS: Final[Mapping[str, msgspec.Struct]] = {
    "head": HEAD,
    "head-new": SessionHead("stream", None, touched=1, command=0),
    "opened": msgspec.structs.replace(OPENED, model=MODEL),
    "chunk": AudioRow(2**33, 16_384, bytes(range(16))),
    "block": Block("yamnet@0123abcd", b"\x80\x00\xff\x7f"),
    "receipt": Receipt(b"0123456789abcdef", bytes(range(16))),
    "jobhead": JOB_HEAD,
    "jobhead-new": JobHead(JobState.RECEIVING, command=0, touched=1, upload="u-1", parts=1, received=4),
    "accepted": ACCEPTED,
}
_METERED_ROWS: Final[Mapping[str, msgspec.Struct]] = {
    "head-new": SessionHead("stream", None, touched=1, command=0, metered=0),
    "head-deleted": msgspec.structs.replace(HEAD, state=SessionState.DELETED, error=None, metered=0),
    "opened": msgspec.structs.replace(OPENED, model=MODEL, organization="o-1", at=1_700_000_000_123),
}
TUNED: Final = msgspec.structs.replace(
    RULED, at=1_700_000_000_123, tuned=(SoundRules(31, "c-9", SoundRule(), {"Siren": SoundRule(2, 2, 0)}),)
)
ROWS: Final[Mapping[str, msgspec.Struct]] = {
    **_ROWS,
    **_METERED_ROWS,
    "head": msgspec.structs.replace(
        BEGUN_HEAD, begun_by=("01234567", "89abcdef"), derived=True, opened_at=1_700_000_000_000
    ),
    "head-before-derived": msgspec.structs.replace(BEGUN_HEAD, begun_by=("01234567", "89abcdef")),
    "head-new-before-derived": _METERED_ROWS["head-new"],
    "head-deleted-before-derived": _METERED_ROWS["head-deleted"],
    "opened": msgspec.structs.replace(TUNED, model=f"{MODEL}+Kettle", hearing=STANDING_IN, derived=True),
    "opened-before-derived": msgspec.structs.replace(TUNED, model=f"{MODEL}+Kettle", hearing=STANDING_IN),
    "opened-before-notes": msgspec.structs.replace(TUNED, model=f"{MODEL}+Kettle", hearing=HEARING),
    "opened-before-hearing": TUNED,
    "opened-before-tuned": msgspec.structs.replace(RULED, at=1_700_000_000_123),
    "opened-before-sounds": _METERED_ROWS["opened"],
    "head-before-lives": BEGUN_HEAD,
    "head-new-before-lives": _METERED_ROWS["head-new"],
    "head-deleted-before-lives": _METERED_ROWS["head-deleted"],
    "jobhead-before-lives": msgspec.structs.replace(KILLED_JOB_HEAD, keep_audio_ms=3_600_000),
    "jobhead": LIVED_JOB_HEAD,
    "accepted": msgspec.structs.replace(KEPT, model=f"{MODEL}+Kettle", hearing=STANDING_IN),
    "accepted-before-notes": msgspec.structs.replace(KEPT, model=f"{MODEL}+Kettle", hearing=HEARING),
    "accepted-before-hearing": KEPT,
    "block": Block("yamnet@0123abcd+Kettle", b"\x80\x00\xff\x7f", b"\x7f\x81\x00\x00"),
    "block-before-hearing": _ROWS["block"],
}

#: Decoder for each kind of file.
READERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    catalog.COMMANDS: record_codec.decode_command,
    catalog.RESULTS: record_codec.decode_result,
    catalog.JOB_COMMANDS: record_codec.decode_job_command,
    catalog.JOB_RESULTS: record_codec.decode_job_result,
    catalog.COMMANDS_PARKED: record_codec.decode_parked,
    catalog.JOB_COMMANDS_PARKED: record_codec.decode_parked,
    catalog.JOB_RESULTS_PARKED: record_codec.decode_parked,
    catalog.RESULTS_PARKED: record_codec.decode_parked,
}
ROW_READERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "head": session_rows.head,
    "opened": session_rows.opened,
    "chunk": rows.audio,
    "block": session_rows.block,
    "receipt": rows.receipt,
    "jobhead": job_rows.head,
    "accepted": job_rows.accepted,
}


def folder(topic: str) -> Path:
    """Return the directory of a topic's examples: `<topic>/v1`."""
    return HERE / topic.removesuffix(".v1") / "v1"


def readable(record: msgspec.Struct) -> str:
    """Return a record as JSON with its field names; bytes in hex."""
    plain = {"record": type(record).__name__, **_named(record)}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def _named(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_named(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def files() -> dict[Path, tuple[msgspec.Struct, bytes]]:
    """Return the path of every example (without suffix), with its record and its bytes."""
    found: dict[Path, tuple[msgspec.Struct, bytes]] = {
        folder(topic) / name: (record, record_codec.encode(record))
        for topic, records in RECORDS.items()
        for name, record in records.items()
    }
    found |= {folder(catalog.CHANGELOG) / name: (row, rows.encode(row)) for name, row in ROWS.items()}
    return found


def main() -> None:
    """Write missing files."""
    for path, (record, data) in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.with_suffix(".msgpack").exists():
            path.with_suffix(".msgpack").write_bytes(data)
        if not path.with_suffix(".json").exists():
            path.with_suffix(".json").write_text(readable(record))


if __name__ == "__main__":
    main()
