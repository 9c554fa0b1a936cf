"""The vendor's documented Python client on top of this package: a program written for it changes one import.

>>> from earshot_client.compat import Client, CochlSenseException

It keeps the vendor's interface, including its quirks:

- `CochlSenseException` derives from `BaseException`, so `except Exception` does not catch it. Its message is the reason
  phrase of the status (`Unauthorized`); its text adds a sentence about support.
- An empty key is a `ValueError` before any request.
- `get_completed_result` returns None if the analysis failed or the stream ended; an unknown job is an
  `urllib.error.HTTPError`.
- A voice file of more than 10 MB is refused before it is sent. The service's messages about speakers are kept.
- `Client.predict` raises `FileNotFoundError`; `ValueError` for a file that is not MP3, WAV or Ogg; and
  `TimeoutException`, which derives from `BaseException`, when the timeout elapses.

It differs from the vendor's client: the default host is `EARSHOT_URL` or this machine; files are read and sent in
pieces; a busy service and a lost answer are retried; a service that does not answer is a `CochlSenseException` too; and
`predict` takes no FLAC or AIFF (`earshot_client.Client.detect` does).
"""

from __future__ import annotations

import json
import os
import secrets
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError

from . import _media, _session_flows
from ._calls import UNREADABLE, Answer, Call, Flow, Pause, ask, sendable, work
from ._compat_values import (
    ChunkSize,
    EventDetectionApiConfig,
    EventDetectionApiConfigFromJson,
    EventDetectionResult,
    IntegratedApiOptions,
    Result,
    SensitivityConfig,
    SensitivityScale,
    SoundTag,
    WindowResult,
    default_host,
    window_result,
)
from ._errors import (
    DeadlineExceeded,
    EarshotClientError,
    JobDeleted,
    RequestRefused,
    ServiceUnreachable,
    UnknownFormat,
    WrongKey,
)
from ._job_stream import JobStream
from ._json import decoded
from ._keys import checked_key
from ._session_flows import EMPTY_PAUSE, OfficialTag
from ._session_values import Sensitivity, Session, SessionOptions
from ._speaker_flows import BUSY
from ._uploads import opened, upload
from ._version import USER_AGENT

if TYPE_CHECKING:
    from ._connection import Connection

__all__ = [
    "APIConfig",
    "APIConfigFromJson",
    "ChunkSize",
    "Client",
    "CochlSenseException",
    "CustomSoundApi",
    "EventDetectionApi",
    "EventDetectionApiConfig",
    "EventDetectionApiConfigFromJson",
    "EventDetectionResult",
    "IntegratedApi",
    "IntegratedApiOptions",
    "Result",
    "SensitivityConfig",
    "SensitivityScale",
    "SoundTag",
    "SpeakerProfileApi",
    "TimeoutException",
    "WindowResult",
]

APIConfig = EventDetectionApiConfig
APIConfigFromJson = EventDetectionApiConfigFromJson

#: Most bytes of a voice file, or of a file to recognise.
VOICE_BYTES: Final = 10 * 1024 * 1024
SUPPORT: Final = "Please contact the operator of this service."
FORMATS: Final = {"audio/mp3": "mp3", "audio/wav": "wav", "audio/ogg": "ogg"}
NO_UPLOADS: Final = "custom sounds are not uploaded to this service: its operator runs `earshot models train-tag`"
_PAGE: Final = 1024


class CochlSenseException(BaseException):
    """The base of all errors: anything that the service refused.

    Attributes:
        message: the reason phrase of the status, or the service's message about a speaker.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.message}\n{SUPPORT}"


class TimeoutException(BaseException):
    """The timeout of `predict` elapsed."""

    def __init__(self, session_id: str, timeout: float) -> None:
        super().__init__(session_id, timeout)
        self.session_id = session_id
        self.timeout = timeout

    def __str__(self) -> str:
        return f"the prediction of session {self.session_id} took longer than {self.timeout:g} s"


def _connected(api: object, host: str) -> Connection:
    """Return a connection that closes with the last reference to `api`: the vendor's programs close nothing."""
    # Imported here: httpx2 takes most of the loading time of this package.
    from ._connection import Connection

    connection = Connection(host.rstrip("/"), USER_AGENT, None, time.sleep)
    weakref.finalize(api, connection.close)
    return connection


def _checked(key: str, kind: str) -> str:
    if not key:
        raise ValueError(f"the {kind} key is empty")
    try:
        return checked_key(key)
    except WrongKey as error:
        raise ValueError(f"{kind} key: {error}") from None


@contextmanager
def _vendors_errors() -> Iterator[None]:
    try:
        yield
    except RequestRefused as error:
        raise CochlSenseException(_phrase(error.status)) from error
    except UnknownFormat as error:
        raise CochlSenseException(_phrase(UNREADABLE)) from error
    except EarshotClientError as error:
        raise CochlSenseException(str(error)) from error


def _phrase(status: int) -> str:
    """Return the reason phrase of a status, which the protocol does not always carry."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return str(status)


class IntegratedApi:
    """Jobs: whole recordings, analysed in the background."""

    def __init__(self, project_key: str, host: str | None = None) -> None:
        """Connect to a service; `host` ends in `/api/v1`. An empty key is a ValueError."""
        self._key = _checked(project_key, "project")
        self._connection = _connected(self, host or default_host("/api/v1"))

    def analyze_file(self, audio_file_path: str, options: IntegratedApiOptions) -> dict[str, Any]:
        """Send a recording; return the job's id under `job_id`, its `status` and `created_at`."""
        with _vendors_errors():
            return self._connection.run(self._analyze(audio_file_path, vars(options)), None)

    def _analyze(self, path: str, options: dict[str, Any]) -> Flow[dict[str, Any]]:
        headers = {"X-Api-Key": self._key, "Idempotency-Key": secrets.token_hex(16)}
        with (yield from opened(Path(path))) as file:
            body = yield from upload({"options": json.dumps(options)}, "audio", file)
            answer = yield from ask(Call("POST", "/analyze_file", headers=headers, upload=body))
        return decoded(answer.body, dict[str, Any])

    def get_completed_result(self, job_id: str) -> Any:
        """Wait for the result of a job; None if the analysis failed or its stream ended.

        Raises:
            HTTPError: the service knows no such job.
        """
        stream = JobStream(job_id, key=self._key, prefix="")
        stream.patience = 0.0  # The vendor's client does not wait for a service that is gone either.
        try:
            for event in self._connection.server_events(stream, None):
                if event.kind == "completed":
                    return json.loads(event.data)
        except RequestRefused as error:
            raise HTTPError(f"/jobs/{job_id}/stream", error.status, _phrase(error.status), Message(), None) from error
        except JobDeleted:
            return None
        except ServiceUnreachable as error:
            if not stream.connected:
                raise CochlSenseException(str(error)) from error
        return None


class SpeakerProfileApi:
    """Registered speakers of an organization."""

    def __init__(self, organization_key: str, host: str | None = None) -> None:
        """Connect to a service; `host` ends in `/api/v2`. An empty key is a ValueError."""
        self._headers = {"X-Org-Key": _checked(organization_key, "organization")}
        self._connection = _connected(self, host or default_host("/api/v2"))

    def list_all_speakers(self) -> Any:
        """Return the speakers."""
        return self._data(ask(Call("GET", "/speakers", headers=self._headers), busy=BUSY))

    def add_new_voice(self, speaker: str, file_path: str) -> Any:
        """Register a voice sample of at most 10 MB."""
        return self._data(self._upload("/voice", {"speaker": sendable(speaker)}, file_path))

    def remove(self, speaker: str) -> Any:
        """Delete a speaker. It is never retried: a retry could not tell a lost answer from a wrong name."""
        call = Call("DELETE", "/speaker", headers=self._headers, query={"speaker": sendable(speaker)})
        return self._data(ask(call, repeatable=False, busy=frozenset()))

    def recognize(self, file_path: str) -> Any:
        """Return who speaks when in a recording of at most 10 MB."""
        return self._data(self._upload("/recognition", {}, file_path))

    def _upload(self, path: str, fields: dict[str, str], file_path: str) -> Flow[Answer]:
        with (yield from opened(Path(file_path))) as file:
            if os.fstat(file.fileno()).st_size > VOICE_BYTES:
                raise CochlSenseException(f"the file is bigger than {VOICE_BYTES >> 20} MB")
            body = yield from upload(fields, "file", file)
            # A retry after a lost answer would add the voice twice.
            call = Call("POST", path, headers=self._headers, upload=body)
            return (yield from ask(call, repeatable=not fields, busy=BUSY))

    def _data(self, flow: Flow[Answer]) -> Any:
        with _vendors_errors():
            answer = decoded(self._connection.run(flow, None).body, dict[str, Any])
        if answer.get("error"):
            raise CochlSenseException(str(answer["error"]))
        return answer.get("data", {"error": "data not found"})


class EventDetectionApi:
    """Sound events of a file, by a session."""

    def __init__(self, api_project_key: str, api_config: EventDetectionApiConfig | None = None) -> None:
        """Connect to the service in the configuration. An empty key is a ValueError."""
        self.project_key = _checked(api_project_key, "project")
        self.config = api_config or EventDetectionApiConfig()
        self.host = self.config.host
        self._connection = _connected(self, self.host)

    def get_official_tags(self) -> list[OfficialTag]:
        """Return the tags that the model knows, each with a `name`."""
        with _vendors_errors():
            answer = self._connection.run(ask(Call("GET", "/tags/official")), None)
            return decoded(answer.body, list[OfficialTag])

    def predict(self, audio_file_path: str, timeout: float | None = None) -> Result:
        """Return the windows of a file.

        Args:
            audio_file_path: an MP3, WAV or Ogg file.
            timeout: seconds to wait for the windows once the file is sent; no limit by default.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is of another format.
            TimeoutException: the timeout elapsed.
        """
        with _vendors_errors():
            session = self._connection.run(self._send(Path(audio_file_path)), None)
            try:
                windows = self._connection.run(self._windows(session.id), timeout)
            except DeadlineExceeded:
                raise TimeoutException(session.id, timeout or 0) from None
        return Result(EventDetectionResult(session.id, windows, session.window_hop))

    def _send(self, path: Path) -> Flow[Session]:
        with (yield from opened(path)) as file:
            kind = yield from work(lambda: _media.content_type_of(file))
            if kind not in FORMATS:
                raise ValueError(f"{path} is none of {', '.join(FORMATS.values())}")
            levels = self.config.sensitivity
            sensitivity = Sensitivity(levels.default.value, {tag: one.value for tag, one in levels.by_tags.items()})
            size, name = os.fstat(file.fileno()).st_size, sendable(path.name)
            options = SessionOptions("file", kind, sensitivity, total_size=size, file_name=name)
            return (yield from _session_flows.send_file(self.project_key, file, options))

    def _windows(self, session_id: str) -> Flow[list[WindowResult]]:
        windows: list[WindowResult] = []
        while True:
            page = yield from _session_flows.results(self.project_key, session_id, len(windows), _PAGE)
            if page.state == "error":
                raise CochlSenseException(page.error or "the analysis failed")
            if page.state == "done":
                windows += [window_result(event) for event in page.events]
                if not page.has_more:
                    return windows
            else:
                yield Pause(EMPTY_PAUSE)


Client = EventDetectionApi


class CustomSoundApi:
    """Custom sounds. This service takes no uploads of them; its operator teaches a model instead."""

    def __init__(self, organization_key: str, host: str | None = None) -> None:
        """Accept the vendor's arguments. An empty key is a ValueError."""
        _checked(organization_key, "organization")

    def upload(self, custom_sound_tag: str, zip_file_path: str) -> dict[str, Any]:
        """Raise CochlSenseException, which names the alternative."""
        raise CochlSenseException(NO_UPLOADS)
