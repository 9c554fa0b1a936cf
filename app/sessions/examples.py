"""Examples of requests and answers about sessions, for the documents."""

from typing import Final

from app.cluster.cursors import ListCursors
from app.sessions.answers import SessionEntry
from app.sessions.requests import RAW, CreateSession
from app.windows import OTHERS, SenseEvent, SenseEventTag
from topics.ports.lists import ListQuery
from topics.times import iso_time

ID: Final = "fB1n1kZ0QwS3uVx7Tq9RmE2y"
#: The first samples of half a second of silence, too short for any window: only its form matters here.
BASE64: Final = "AAAAAAAAAAAAAAAAAAAAAA=="
EVENTS: Final = [
    SenseEvent(
        start_time=0, end_time=1, tags=[SenseEventTag("Fire_smoke_alarm", 0.9267), SenseEventTag("Alarm", 0.8155)]
    ),
    SenseEvent(start_time=0.5, end_time=1.5, tags=[OTHERS]),
]
STREAM: Final = CreateSession(RAW, "stream")
FILE: Final = CreateSession("audio/wav", "file", total_size=320_044, default_sensitivity=-1, file_name="roof.wav")

CREATED_MS: Final = 1_795_330_174_481
CREATED: Final = iso_time(CREATED_MS)
LISTED: Final = SessionEntry(ID, "writable", "stream", RAW, CREATED, CREATED, None, 1.5, False)
FAULT: Final = "the audio is not audio/mp3 as declared"
DAMAGED: Final = SessionEntry(ID, "readonly", "file", "audio/mp3", CREATED, CREATED, "roof.mp3", 0, False, FAULT)
LIST_TOKEN: Final = ListCursors(bytes(16)).issue("sessions", ListQuery("project"), (CREATED_MS, ID))
