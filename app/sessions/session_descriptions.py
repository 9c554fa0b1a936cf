"""The operations of audio sessions, as the documents describe them."""

from collections.abc import Mapping
from typing import Any, Final

from app.cluster.cursors import ListCursors
from app.cluster.lists import MissingPart
from app.http.bodies import decode
from app.http.descriptions import (
    Answer,
    Description,
    Fault,
    Key,
    Parameter,
    fault_of,
    integer_query,
    json_answer,
    json_body,
)
from app.http.operation import Handler
from app.sessions import catalogue, commands, lists, reads
from app.sessions.answers import (
    ClientVersions,
    CreatedSession,
    LatestClient,
    OfficialTag,
    Page,
    Prediction,
    Sense,
    SenseEvent,
    SenseEventTag,
    SessionEntry,
    SessionId,
    SessionPage,
    SessionRefs,
    SessionResults,
    SessionStatus,
)
from app.sessions.cursors import parse
from app.sessions.requests import CREATE, UPDATE, AudioChunk, CreateSession, PredictRequest, UpdateSession, chunk_audio
from app.sessions.tokens import PageTokens
from app.sessions.waiting import NO_SESSION
from app.shared_descriptions import BROKEN, IDEMPOTENCY_KEY, LIST_TEXT, PROJECT_KEY, list_faults, list_parameters
from app.sound_rules import SoundRuleFields, rule_of
from topics import media
from topics.catalog import DEFAULT_CHUNK_LIMIT
from topics.errors import NotFound
from topics.folding import Arrival
from topics.geometry import SESSIONS
from topics.ports.lists import ListQuery
from topics.sessions.records import Chunk, Opened, Sealed, SessionCommand
from topics.sessions.rules import LISTED_STATES, MOST_TUNED, OVER, TOO_OFTEN, fold_command
from topics.times import iso_time

ID: Final = "fB1n1kZ0QwS3uVx7Tq9RmE2y"
RAW: Final = "audio/x-raw; rate=16000; format=s16le"
#: The first samples of half a second of silence, too short for any window: only its form matters here.
BASE64: Final = "AAAAAAAAAAAAAAAAAAAAAA=="
TOKEN: Final = PageTokens(bytes(16)).issue(ID, 2, reads.PAGE)

AFTER: Final = Parameter(
    "after", "query", str, "Instead of `offset`: a live socket's cursor, or a window's number; later windows follow.",
    example="start",
)  # fmt: skip
NO_CURSOR: Final = fault_of(parse, "after", ID, "yesterday")

EVENTS: Final = [
    SenseEvent(0, 1, [SenseEventTag("Fire_smoke_alarm", 0.9267), SenseEventTag("Alarm", 0.8155)]),
    SenseEvent(0.5, 1.5, [SenseEventTag("Others", 0.0)]),
]
STREAM: Final = CreateSession(RAW, "stream")
FILE: Final = CreateSession("audio/wav", "file", total_size=320_044, default_sensitivity=-1, file_name="roof.wav")

CREATED_MS: Final = 1_795_330_174_481
CREATED: Final = iso_time(CREATED_MS)
LISTED: Final = SessionEntry(ID, "writable", "stream", RAW, CREATED, CREATED, None, 1.5, False)
FAULT: Final = "the audio is not audio/mp3 as declared"
DAMAGED: Final = SessionEntry(ID, "readonly", "file", "audio/mp3", CREATED, CREATED, "roof.mp3", 0, False, FAULT)
LIST_TOKEN: Final = ListCursors(bytes(16)).issue("sessions", ListQuery("project"), (CREATED_MS, ID))

#: The key that requests about a session need besides its id, if the deployment requires one.
SESSION_KEY: Final = Key("projectKey", only_with="sessions_need_key")
SESSION: Final = Parameter("session_id", "path", SessionId, "The session.", required=True, example=ID)
NO_SUCH_SESSION: Final = NotFound(NO_SESSION)
TOO_LARGE: Final = fault_of(
    chunk_audio, b'{"data":"%s"}' % (b"A" * (DEFAULT_CHUNK_LIMIT // 3 * 4 + 8)), DEFAULT_CHUNK_LIMIT
)
NO_BASE64: Final = fault_of(chunk_audio, b'{"data":"@@@@"}', DEFAULT_CHUNK_LIMIT)
MODEL: Final = {
    "Earshot-Model": "The model that scored the windows, as name@hash; absent if unknown.",
    "Earshot-Note": "Present only if this model replaces the intended one, which cannot be used.",
}


def _refusal(*history: SessionCommand) -> Fault:
    """Return the refusal of the last command of a history, by the rules for all commands."""
    head = None
    for offset, command in enumerate(history, start=1):
        step = fold_command(head, command, Arrival(offset, 0))
        head = step.head
    return commands.refusal(step.verdict)


def _opened(kind: Any = "stream") -> Opened:
    return Opened("1", kind, RAW, "project", SESSIONS.window_ms, SESSIONS.hop_ms)


def _chunk(number: int, predict: bool = False) -> Chunk:
    return Chunk("2", number, bytes(16), predict=predict)


_READONLY: Final = _refusal(_opened(), Sealed("2"), _chunk(0))
_NOT_NEXT: Final = _refusal(_opened(), _chunk(0), _chunk(2))


def _offset(query: str) -> Fault:
    return fault_of(reads.OFFSET.read, {"offset": query})


OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    commands.create_session: Description(
        summary="Open a session",
        text="The key is checked first: without a valid one the answer is 401, whatever the body. Values set here "
        f"never change. The texts of `metadata` may have {commands.METADATA_BYTES} bytes in all. Windows are 1 s long "
        "every 0.5 s here, and 2 s every 1 s under `/sense/api/v1`.",
        origin="contract",
        key=PROJECT_KEY,
        bodies=json_body(stream=STREAM, file=FILE),
        answers=json_answer("The session.", stream=CreatedSession(ID, 0, 1, 0.5)),
        faults=(
            fault_of(decode, CREATE, b'{"content_type":"audio/wav"}'),
            fault_of(media.parse, "audio/x-raw; rate=0; format=s16le"),
            *BROKEN,
        ),
    ),
    lists.list_sessions: Description(
        summary="List the sessions",
        text=f"The sessions of the project, newest first. {LIST_TEXT}",
        key=PROJECT_KEY,
        parameters=list_parameters(LISTED_STATES),
        answers=json_answer(
            "A page.",
            first=SessionPage([LISTED], LIST_TOKEN),
            last=SessionPage([DAMAGED]),
            incomplete=SessionPage([LISTED], missing=MissingPart(21, 64)),
        ),
        faults=list_faults("sessions", LISTED_STATES),
    ),
    commands.update_session: Description(
        summary="End the upload, or change the rules of sounds",
        text="`make_readonly`: a `readonly` session takes no more chunks and is never writable again. A file is "
        "analysed now. `false`, or a body without the field, changes nothing. `sound_rule` and `sound_rules` apply to "
        f"windows that are not analysed yet; they change at most {MOST_TUNED} times.",
        origin="contract",
        key=SESSION_KEY,
        parameters=(SESSION,),
        bodies=json_body(readonly=UpdateSession(True), rules=UpdateSession(sound_rule=SoundRuleFields(2, 3, 1.5))),
        answers={204: Answer("Done.")},
        faults=(
            fault_of(decode, UPDATE, b"[]"),
            fault_of(rule_of, SoundRuleFields(3, 2)),
            commands.refusal(TOO_OFTEN),
            commands.refusal(OVER),
            NO_SUCH_SESSION,
            *BROKEN,
        ),
    ),
    commands.delete_session: Description(
        summary="Delete a session",
        text="It is no longer served. A session without a chunk for {session_idle_seconds} s is deleted too.",
        origin="contract",
        key=SESSION_KEY,
        parameters=(SESSION,),
        answers={204: Answer("Deleted.")},
        faults=(NO_SUCH_SESSION, *BROKEN),
    ),
    commands.upload_chunk: Description(
        summary="Upload a chunk",
        text="The answer is 200 once the audio is on disk; it is then analysed whatever dies. A chunk holds at most "
        "{contract_chunk_limit} bytes of audio here, {chunk_limit} under `/sense/api/v1`. For a stream, send about "
        "half a second at a time; each chunk must be decodable alone. For a file, send 1 MiB at a time; only the "
        "whole must be decodable. Only the next number is accepted: after 409 the status has it. Audio of another "
        "type than declared makes the session `readonly`; `error` in its status says why.",
        origin="contract",
        key=SESSION_KEY,
        parameters=(
            SESSION,
            Parameter(commands.SEQUENCE.name, "path", commands.SEQUENCE, commands.SEQUENCE.text, True, 0),
            IDEMPOTENCY_KEY,
        ),
        bodies=json_body(silence=AudioChunk(BASE64), small=False),
        answers=json_answer("The chunk is accepted.", first=SessionRefs(ID, 1)),
        faults=(
            fault_of(commands.SEQUENCE.judge, "one"),
            NO_BASE64,
            _READONLY,
            NO_SUCH_SESSION,
            _NOT_NEXT,
            TOO_LARGE,
            *BROKEN,
        ),
    ),
    reads.read_status: Description(
        summary="Read a page of windows",
        text="While audio waits for analysis and the page is empty, the answer waits up to {poll_seconds} s. If it is "
        "still empty, ask again. The last page of a closed stream also waits for the end of the analysis, and a page "
        "at the end of an open session waits if a `next_token` led there. `next_token` overrides the other parameters; "
        "following it page by page returns every window exactly once, in order. The last page has none. An empty "
        "`next_token` counts as absent.",
        origin="contract",
        key=SESSION_KEY,
        parameters=(
            SESSION,
            integer_query(reads.OFFSET),
            integer_query(reads.COUNT),
            AFTER,
            Parameter("next_token", "query", str, "The token of the earlier page.", example=""),
        ),
        answers=json_answer(
            "The state, and windows.",
            stream=SessionStatus("writable", SessionRefs(ID, 3), Sense(False, Page(2, 0, 2, TOKEN), EVENTS)),
            damaged=SessionStatus(
                "readonly",
                SessionRefs(ID, 1),
                Sense(False, Page(0, 0, 0), []),
                "the audio is not audio/mp3 as declared",
            ),
            headers=MODEL,
        ),
        faults=(
            _offset("-1"),
            NO_CURSOR,
            fault_of(PageTokens(bytes(16)).read, ID, "no-token"),
            NO_SUCH_SESSION,
            *BROKEN,
        ),
    ),
    reads.read_results: Description(
        summary="Read windows as later clients do",
        text="While a `readonly` session is being analysed, the answer waits up to {poll_seconds} s.",
        origin="public-clients",
        key=SESSION_KEY,
        parameters=(SESSION, integer_query(reads.OFFSET), AFTER, integer_query(reads.LIMIT)),
        answers=json_answer(
            "Windows, and the session's state.", done=SessionResults("done", EVENTS, False), headers=MODEL
        ),
        faults=(_offset("one"), NO_CURSOR, NO_SUCH_SESSION, *BROKEN),
    ),
    reads.predict: Description(
        summary="Analyse one window at once",
        text="An independent window, in a `stream` session without chunks. The answer waits up to {poll_seconds} s "
        "for its analysis, then is 503; the window is accepted all the same, and the status has it once it is done. "
        "The limits of chunks apply.",
        origin="public-clients",
        key=SESSION_KEY,
        parameters=(SESSION, IDEMPOTENCY_KEY),
        bodies=json_body(window=PredictRequest(BASE64, 0), small=False),
        answers=json_answer("The window.", window=Prediction(EVENTS[0], 1)),
        faults=(
            _refusal(_opened("file"), _chunk(0, predict=True)),
            NO_BASE64,
            _READONLY,
            NO_SUCH_SESSION,
            _NOT_NEXT,
            TOO_LARGE,
            reads.not_in_time(0),
            *BROKEN,
        ),
    ),
    catalogue.official_tags: Description(
        summary="List the sounds that can be recognised",
        text="Those of the model in use.",
        origin="public-clients",
        answers={200: Answer("The sounds.", (list[OfficialTag],), {"two": [OfficialTag("dog_bark", "Dog_bark")]})},
        faults=(500,),
    ),
    catalogue.client_versions: Description(
        summary="List the supported client libraries",
        origin="public-clients",
        answers=json_answer("Versions.", all=ClientVersions(catalogue.CLIENT_LIBRARIES)),
    ),
    catalogue.latest_client: Description(
        summary="Read the newest client library",
        origin="public-clients",
        answers=json_answer("The newest version.", newest=LatestClient(catalogue.CLIENT_LIBRARIES[-1])),
    ),
}
