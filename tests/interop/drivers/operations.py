"""Run by a vendor client's interpreter: `cochl-sense-api`, each operation by hand.

Arguments: host, key, audio file, content type. Prints JSON.
"""

import json
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from cochl_sense_api import ApiClient, ApiException, AudioSessionApi, Configuration  # type: ignore[import-not-found,unused-ignore]
from cochl_sense_api.models import (  # type: ignore[import-not-found,unused-ignore]
    AudioChunk,
    CreateSession,
    PredictRequest,
    SessionStatus,
    SessionType,
    UpdateSession,
)

HALF_SECOND = b"\x00\x00" * 8000


def refused(call: Callable[[], object]) -> str:
    """Call, and return the exception's name and the status that the client parsed."""
    try:
        call()
    except ApiException as error:
        return f"{type(error).__name__} {error.data.status_code}"
    return "nothing"


def pages(api: AudioSessionApi, session: str, count: int) -> list[SessionStatus]:
    read = [api.read_status(session, count=count)]
    while read[-1].inference.page.next_token is not None:
        read.append(api.read_status(session, next_token=read[-1].inference.page.next_token))
    return read


def file_session(api: AudioSessionApi, path: str, content_type: str) -> dict[str, object]:
    data = Path(path).read_bytes()
    created = api.create_session(CreateSession(type=SessionType.FILE, content_type=content_type))
    session = created.session_id
    pending = api.get_results(session).state
    middle = len(data) // 2
    after = api.upload_chunk(session, created.chunk_sequence, AudioChunk(data=b64encode(data[:middle]).decode()))
    rest = AudioChunk(data=b64encode(data[middle:]).decode())
    skipped = refused(lambda: api.upload_chunk(session, after.chunk_sequence + 1, rest))
    api.upload_chunk(session, after.chunk_sequence, rest)
    api.update_session(session, UpdateSession(make_readonly=True))
    closed = refused(lambda: api.upload_chunk(session, after.chunk_sequence + 1, rest))
    read = pages(api, session, 3)
    results = api.get_results(session, offset=1, limit=2)
    forged = refused(lambda: api.read_status(session, next_token="forged"))
    api.delete_session(session)
    return {
        "created": created.to_dict(),
        "pending": pending,
        "skipped": skipped,
        "closed": closed,
        "forged": forged,
        "states": [status.state for status in read],
        "pages": [status.inference.page.to_dict() for status in read],
        "windows": [event.to_dict() for status in read for event in status.inference.results],
        "some": {"state": results.state, "more": results.has_more, "data": [event.to_dict() for event in results.data]},
        "deleted": refused(lambda: api.read_status(session)),
    }


def predictions(api: AudioSessionApi) -> dict[str, object]:
    """Send windows of silence to predict."""
    opening = CreateSession(type=SessionType.STREAM, content_type="audio/x-raw; rate=16000; format=s16le")
    session = api.create_session(opening)
    window = b64encode(HALF_SECOND * round(2 * session.window_size)).decode()
    first = api.predict(session.session_id, PredictRequest(data=window, sequence=session.chunk_sequence))
    second = api.predict(session.session_id, PredictRequest(data=window, sequence=first.next_sequence))
    again = refused(lambda: api.predict(session.session_id, PredictRequest(data=window, sequence=first.next_sequence)))
    return {"data": [first.data.to_dict(), second.data.to_dict()], "next": second.next_sequence, "again": again}


def wrong_key(host: str) -> str:
    configuration = Configuration(host=host, api_key={"API_Key": "not-a-key-of-this-service"})
    api = AudioSessionApi(ApiClient(configuration))
    # Even if the body has other faults: the key is checked first.
    return refused(lambda: api.create_session(CreateSession(type=SessionType.FILE, content_type="no/audio")))


def main(host: str, key: str, path: str, content_type: str) -> dict[str, object]:
    api = AudioSessionApi(ApiClient(Configuration(host=host, api_key={"API_Key": key})))
    return {
        "file": file_session(api, path, content_type),
        "predict": predictions(api),
        "wrong_key": wrong_key(host),
        "bad_type": refused(lambda: api.create_session(CreateSession(type=SessionType.FILE, content_type="no/audio"))),
    }


print(json.dumps(main(*sys.argv[1:])))
