"""Windows and events have the same fields in answers, in the client's types and in the dashboard."""

import re
from typing import get_args

import msgspec
import pytest

import earshot_client
from app import windows
from app.dashboard import files
from app.sessions import answers
from app.sessions.socket_messages import EVENTS, SOUND_EVENTS, name_of
from topics.sessions import sounds

SOCKET_EVENTS = {name_of(kind): kind for kind in get_args(earshot_client.SocketEvent)}


def fields(kind: type[msgspec.Struct]) -> set[str]:
    return set(kind.__struct_encode_fields__)


@pytest.mark.parametrize(
    ("told", "read", "unread"),
    [
        (windows.SenseEventTag, earshot_client.Tag, set()),
        (windows.SenseEvent, earshot_client.Event, set()),
        (windows.SoundClass, earshot_client.SoundClass, {"id"}),
        (windows.SoundWindow, earshot_client.Window, {"id", "start_time", "end_time"}),
        (answers.Level, earshot_client.Level, set()),
        (answers.Strip, earshot_client.Strip, set()),
        (answers.LiveWindow, earshot_client.LiveWindow, set()),
        *((kind, SOCKET_EVENTS.get(name_of(kind)), fields(kind) & {"session_id"}) for kind in EVENTS),
    ],
)
def test_client_reads_all_fields(
    told: type[msgspec.Struct], read: type[msgspec.Struct] | None, unread: set[str]
) -> None:
    assert read is not None, "the client has no type for it"
    assert fields(told) == fields(read) | unread


def test_events_of_a_socket_are_the_clients() -> None:
    assert SOCKET_EVENTS.keys() == {name_of(kind) for kind in EVENTS}
    for name, kind in SOCKET_EVENTS.items():
        assert getattr(earshot_client, kind.__name__) is kind
        assert kind.kind == name


def test_events_of_sounds_have_types() -> None:
    made = {name for name in vars(sounds).values() if isinstance(name, str) and name.startswith("sound.")}
    assert made == SOUND_EVENTS.keys()


def test_dashboard_names_existing_events() -> None:
    scripts = "".join(path.read_text(encoding="utf-8") for path in files.DIRECTORY.glob("*.js"))
    named = set(re.findall(r'"(sound\.\w+)"', scripts))
    assert named
    assert named <= SOUND_EVENTS.keys()
