"""Examples of requests and answers about sessions, for the documents."""

from functools import partial
from typing import Final

from app.cluster.cursors import ListCursors
from app.sessions.answers import Level, LiveWindow, SessionEntry, Strip
from app.sessions.requests import RAW, CreateSession
from app.windows import SenseEvent, WindowRenderer
from topics.geometry import SESSIONS
from topics.ports.lists import ListQuery
from topics.times import iso_time

ID: Final = "fB1n1kZ0QwS3uVx7Tq9RmE2y"
#: The first samples of half a second of silence, too short for any window: only its form matters here.
BASE64: Final = "AAAAAAAAAAAAAAAAAAAAAA=="
#: The model and the scores of two windows.
RENDERER: Final = WindowRenderer(["Fire_smoke_alarm", "Alarm"])
SCORES: Final = bytes([164, 149, 90, 80])
EVENTS: Final = [
    RENDERER.event(SenseEvent, SESSIONS, number, tags) for number, tags in enumerate(RENDERER.reported_tags(SCORES))
]
_HEARD = partial(LiveWindow, session_id=ID, window=17, level=Level(-22.4, -9.1), strip=Strip(9.0, bytes(3)))
HEARD: Final = RENDERER.event(
    partial(_HEARD, top=RENDERER.top(SCORES[:2], 2)), SESSIONS, 17, RENDERER.reported_tags(SCORES)[0]
)
STREAM: Final = CreateSession(RAW, "stream")
FILE: Final = CreateSession("audio/wav", "file", total_size=320_044, default_sensitivity=-1, file_name="roof.wav")

CREATED_MS: Final = 1_795_330_174_481
CREATED: Final = iso_time(CREATED_MS)
LISTED: Final = SessionEntry(ID, "writable", "stream", RAW, CREATED, CREATED, None, 1.5, False)
FAULT: Final = "the audio is not audio/mp3 as declared"
DAMAGED: Final = SessionEntry(ID, "readonly", "file", "audio/mp3", CREATED, CREATED, "roof.mp3", 0, False, FAULT)
LIST_TOKEN: Final = ListCursors(bytes(16)).issue("sessions", ListQuery("project"), (CREATED_MS, ID))
