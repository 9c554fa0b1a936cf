"""The log and the live socket as AsyncAPI 3.0: topics with their records, and socket messages, built from their types.

https://www.asyncapi.com/docs/reference/specification/v3.0.0. A record is a msgpack array, so its schema lists the
fields by position, each named in its `title`. Where a schema says base64, the log has plain binary.
"""

from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec

from app.sessions import socket_messages
from topics import catalog, record_codec
from topics.folding import AudioRow, Receipt
from topics.jobs import payloads
from topics.jobs.records import Accepted, JobCommand, JobResult
from topics.jobs.rules import JobHead
from topics.records import Parked
from topics.service_time import Seen, Served
from topics.sessions.capture import Anchor, SourceNote
from topics.sessions.records import Opened, SessionCommand
from topics.sessions.rows import Block, Name, Newest
from topics.sessions.rules import SessionHead

Json = dict[str, Any]

VERSION: Final = "1.0.0"
#: Record types by topic.
RECORDS: Final[dict[str, tuple[type[msgspec.Struct], ...]]] = {
    catalog.COMMANDS: get_args(SessionCommand),
    catalog.JOB_COMMANDS: get_args(JobCommand),
    catalog.JOB_RESULTS: get_args(JobResult),
    **dict.fromkeys(catalog.PARKED.values(), (Parked,)),
    catalog.CHANGELOG: (
        *(Opened, SessionHead, AudioRow, Block, Newest, Name, Receipt, Anchor, SourceNote),
        *(Accepted, JobHead, Served, Seen),
    ),
}
#: Contents of the field `data` in rows and in records of services' portions.
PORTIONS: Final = tuple(payloads.PORTIONS.values())
TEXT: Final = f"""\
The log is Earshot's source of truth: everything accepted is on it. This is for its operators and readers; only \
Earshot may write to it.

- A value is one version byte ({record_codec.VERSION[0]}, in rows as in records), then msgpack.
- A key is the id of the session or job; keys of the changelog are those of the table.
- Records come at least once.
- All topics are partitioned by CRC-32 of the id.
- The embedded log has the same topics, in its own file.
- On Kafka their names begin with EARSHOT_KAFKA_PREFIX, which is `{catalog.APP}` by default.

The channels `socket` and `new-socket` are not on the log: they are a session's live socket, for every client. Its \
text messages are JSON objects; a binary message of a client is a chunk of audio."""
#: The live sockets: one joins a session, the other creates its own.
SOCKETS: Final = {"socket": "/audio_sessions/{session_id}/socket", "new-socket": "/api/v1/socket"}
#: Messages that clients send.
AUDIO: Final = "Audio"


def document() -> Json:
    kinds = list(dict.fromkeys(kind for kinds in RECORDS.values() for kind in kinds))
    texts = (*socket_messages.SENT, *socket_messages.TAKEN)
    _, components = msgspec.json.schema_components(
        [*kinds, *PORTIONS, *texts], ref_template="#/components/schemas/{name}"
    )
    topics = catalog.topics(audio_retention_ms=0)
    arrays = {kind.__name__: kind for kind in _structs([*kinds, *PORTIONS])}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Earshot's log and live socket",
            "version": VERSION,
            "description": TEXT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/msgpack",
        "channels": {**{_name(topic.name): _channel(topic) for topic in topics}, **_socket_channels()},
        "operations": {**dict(_operations(topics)), **_socket_operations()},
        "components": {
            "messages": {
                **{kind.__name__: _message(kind) for kind in kinds},
                **{kind.__name__: _text(kind) for kind in texts},
                AUDIO: {
                    "name": AUDIO,
                    "title": AUDIO,
                    "summary": "The next chunk, as bytes.",
                    "contentType": "application/octet-stream",
                    "payload": {"type": "string", "format": "binary"},
                },
            },
            "schemas": {name: _draft_7(schema, arrays.get(name)) for name, schema in components.items()},
        },
    }


def _channel(topic: catalog.Topic) -> Json:
    cleanup: Json = {"cleanup.policy": ["compact"] if topic.compact else ["delete"]}
    if topic.retention_ms:
        cleanup["retention.ms"] = topic.retention_ms
    return {
        "address": topic.name,
        "description": f"{topic.carries}: written by {topic.producer}, read by {topic.consumer}.",
        "messages": {kind.__name__: {"$ref": f"#/components/messages/{kind.__name__}"} for kind in RECORDS[topic.name]},
        "bindings": {"kafka": {"topic": topic.name, "topicConfiguration": cleanup, "bindingVersion": "0.5.0"}},
    }


def _operations(topics: tuple[catalog.Topic, ...]) -> Iterator[tuple[str, Json]]:
    for topic in topics:
        channel = {"$ref": f"#/channels/{_name(topic.name)}"}
        yield f"write-{_name(topic.name)}", {"action": "send", "channel": channel, "summary": f"By {topic.producer}."}
        if topic.consumer != "people":
            yield (
                f"read-{_name(topic.name)}",
                {"action": "receive", "channel": channel, "summary": f"By {topic.consumer}."},
            )


def _socket_channels() -> Json:
    names = (*(kind.__name__ for kind in (*socket_messages.SENT, *socket_messages.TAKEN)), AUDIO)
    messages = {name: {"$ref": f"#/components/messages/{name}"} for name in names}
    channels: Json = {
        name: {"address": address, "description": "A live socket: audio in, events out.", "messages": messages}
        for name, address in SOCKETS.items()
    }
    channels["socket"]["parameters"] = {"session_id": {"description": "The session."}}
    return channels


def _socket_operations() -> Json:
    operations: Json = {}
    for name in SOCKETS:
        for action, kinds in (
            ("send", [kind.__name__ for kind in socket_messages.SENT]),
            ("receive", [*(kind.__name__ for kind in socket_messages.TAKEN), AUDIO]),
        ):
            operations[f"{action}-{name}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{name}"},
                "summary": f"The service {action}s.",
                "messages": [{"$ref": f"#/channels/{name}/messages/{kind}"} for kind in kinds],
            }
    return operations


def _text(kind: type[msgspec.Struct]) -> Json:
    return {
        "name": socket_messages.name_of(kind),
        "title": kind.__name__,
        "summary": (kind.__doc__ or "").partition("\n")[0],
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
    }


def _message(kind: type[msgspec.Struct]) -> Json:
    return {
        "name": kind.__name__,
        "title": kind.__name__,
        "summary": (kind.__doc__ or "").partition("\n")[0],
        "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"}},
    }


def _name(topic: str) -> str:
    return topic.replace(".", "-")


def _structs(kinds: list[type[msgspec.Struct]]) -> Iterator[type[msgspec.Struct]]:
    """Yield structs, and the structs in their fields."""
    waiting, seen = [*kinds], set()
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.add(kind)
        yield kind
        for field in msgspec.structs.fields(kind):
            for one in (field.type, *get_args(field.type)):
                waiting += [one] if isinstance(one, type) and issubclass(one, msgspec.Struct) else []


def _draft_7(schema: Any, kind: type[msgspec.Struct] | None = None) -> Any:
    """Return a schema in JSON Schema draft 7, which AsyncAPI uses; array positions get the names of fields."""
    if isinstance(schema, list):
        return [_draft_7(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _draft_7(value) for name, value in schema.items()}
    places = made.pop("prefixItems", None)
    if places is not None:
        names = () if kind is None else kind.__struct_encode_fields__
        tag = ["record"] * (len(places) - len(names))
        made["items"] = [_titled(place, name) for place, name in zip(places, (*tag, *names), strict=bool(names))]
    return made


def _titled(schema: Json, name: str) -> Json:
    # Draft 7 ignores the siblings of a reference.
    return {"title": name, "allOf": [schema]} if "$ref" in schema else {"title": name, **schema}
