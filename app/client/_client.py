"""The client that blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self, TypeVar

import httpx2

from app.client import _flows, _jobs, _media, _speakers
from app.client._errors import WrongKey
from app.client._flows import Answer, Call, Flow, Lost, Pause
from app.client._following import Following
from app.client._models import NORMAL, Event, Opening, Page, Sensitivity, Session, Status
from app.client._profiles import ReEnrolled, SpeakerProfile, SpokenTurn
from app.client._results import USUAL, Captions, Job, JobEvent, Options, Result

T = TypeVar("T")

#: A status read may wait on the service's side, for about nine seconds.
TIMEOUT: Final = httpx2.Timeout(30.0, connect=5.0)
#: The service may take its time to store what came fast.
UPLOAD_TIMEOUT: Final = httpx2.Timeout(600.0, connect=5.0)


class Client:
    """A client that blocks; threads may share it.

    >>> with Client("http://127.0.0.1:8000", key) as client:
    ...     for event in client.detect(Path("street.wav")):
    ...         print(event.start, event.end, event.sounds)

    Chunk uploads and reads are repeated after a lost answer or a 503 (as its Retry-After asks), which is harmless:
    uploads carry an Idempotency-Key. Every method may raise `Unreachable` or `Refused`; the constructor `WrongKey`.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        org_key: str = "",
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._key = usable(key)
        self._org_key = usable(org_key)
        self._http = httpx2.Client(base_url=url, timeout=TIMEOUT, transport=transport)
        self._sleep = sleep

    def create_session(self, opening: Opening) -> Session:
        """Open a session; the only call of sessions that needs the key."""
        return self._run(_flows.create(self._key, opening))

    def put_chunk(self, session: str, sequence: int, data: bytes) -> int:
        """Upload a chunk (at most 1 MiB) and return the number of the next one."""
        return self._run(_flows.put_chunk(session, sequence, data))

    def seal(self, session: str) -> None:
        """Make a session readonly."""
        self._run(_flows.seal(session))

    def delete(self, session: str) -> None:
        """Delete a session and all that the service knows of it."""
        self._run(_flows.delete(session))

    def status(self, session: str, token: str | None = None) -> Status:
        """Read one page; the service waits for a while when there is nothing yet."""
        return self._run(_flows.read(session, token))

    def events(self, session: str) -> Iterator[Event]:
        """Yield every event once, in order, as they come, until the session has ended.

        Raises:
            SessionFailed: after what was analysed before the session's error.
        """
        return self._iterate(_flows.follow(session))

    def detect(self, path: Path, sensitivity: Sensitivity = NORMAL) -> Iterator[Event]:
        """Send a file as a file session and yield its events.

        Raises:
            UnknownFormat, SessionFailed, OSError.
        """
        return self._iterate(detection(path, self._key, sensitivity))

    def official_tags(self) -> tuple[str, ...]:
        """Return the tags that the service's model knows."""
        return self._run(_flows.official_tags())

    def analyze_file(
        self,
        audio: Path | BinaryIO,
        options: Options = USUAL,
        *,
        name: str | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Send a recording as a job; it is read a piece at a time, and never whole.

        Args:
            audio: a path, or a file open for reading bytes, which is read from its beginning.
            options: sound events and speech by default.
            name: by default the file's own.
            content_type: needed for raw PCM alone; the service looks at everything else itself.
            idempotency_key: the same key again with the same request gets the first job again; a fresh one by default.

        Raises:
            Exhausted: the project's free seconds are spent.
            JobConflict: the key was used for another request.
            OSError: the file cannot be read.
        """
        with _jobs.opened(audio, name, content_type) as recording:
            return self._run(_jobs.analyze(self._key, recording, options, idempotency_key))

    def job(self, job: str) -> Job:
        """Read a job with what has ended so far; NoJob when there is none of this project."""
        return self._run(_jobs.read(self._key, job))

    def job_events(self, job: str, last_event_id: str | None = None) -> Iterator[JobEvent]:
        """Yield a job's events as they come, to the one that ends it, after the one of that id where one is given.

        A connection that breaks off is made again, and goes on where it was.

        Raises:
            JobFailed: the job was removed meanwhile.
            NoJob, Unreachable.
        """
        following = Following(job, last_event_id)
        while not following.ended():
            call = following.request()
            try:
                with self._http.stream(call.method, call.path, headers=call.headers) as response:
                    if response.status_code == 200:
                        for data in response.iter_bytes():
                            yield from following.feed(data)
                            if following.ended():
                                return
                    else:
                        response.read()
                        following.refused(answer(response))
            except httpx2.TransportError as error:
                following.lost(lost(error).reason)
            self._sleep(following.pause())

    def result(self, job: str) -> Result:
        """Wait until a job has ended and return what came of it, also when services of it failed.

        Raises:
            JobFailed: the job was removed meanwhile.
            NoJob, Unreachable.
        """
        for event in self.job_events(job):
            last = event
        return last.result

    def delete_job(self, job: str) -> None:
        """Delete a job and all that the service knows of it, but what it cost."""
        self._run(_jobs.delete(self._key, job))

    def captions(self, job: str, form: Captions) -> str:
        """Return the captions of a job that has ended: JobConflict while it has not."""
        return self._run(_jobs.captions(self._key, job, form))

    def speakers(self) -> tuple[SpeakerProfile, ...]:
        """Return the organization's registered speakers by name; as all that follows, it needs the organization key."""
        return self._run(_speakers.profiles(self._org_key))

    def add_voice(self, speaker: str, file: Path | BinaryIO) -> SpeakerProfile:
        """Add a voice sample to a speaker, who is made with the first one; return the speaker with it.

        After a lost answer it is not sent again, as it may have been added.

        Raises:
            SpeakerRefused: a rule is broken, which the message names.
            EngineAway: the speaker engine does not answer; nothing was added.
            OSError: the file cannot be read.
        """
        with _jobs.opened(file, None, None) as recording:
            return self._run(_speakers.add_voice(self._org_key, speaker, recording))

    def remove_speaker(self, speaker: str) -> None:
        """Delete a speaker, their samples and their recordings; SpeakerRefused when there is none of this name."""
        self._run(_speakers.remove(self._org_key, speaker))

    def recognize(self, file: Path | BinaryIO) -> tuple[SpokenTurn, ...]:
        """Return who speaks when in a recording of at most ten minutes; errors as `add_voice`."""
        with _jobs.opened(file, None, None) as recording:
            return self._run(_speakers.recognize(self._org_key, recording))

    def re_enroll(self, speaker: str) -> ReEnrolled:
        """Have a speaker's samples learnt by the service's present model, where their recordings were kept."""
        return self._run(_speakers.re_enroll(self._org_key, speaker))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        came: Answer | Lost | None = None
        while True:
            try:
                step = flow.send(came)
            except StopIteration as stop:
                result: T = stop.value
                return result
            came = self._perform(step)

    def _iterate(self, flow: Flow[None]) -> Iterator[Event]:
        came: Answer | Lost | None = None
        while True:
            try:
                step = flow.send(came)
            except StopIteration:
                return
            if isinstance(step, Page):
                yield from step.events
            came = self._perform(step)

    def _perform(self, step: _flows.Step) -> Answer | Lost | None:
        if isinstance(step, Pause):
            self._sleep(step.seconds)
        if not isinstance(step, Call):
            return None
        try:
            response = self._http.request(step.method, step.path, headers=step.headers, params=step.query, **body(step))
        except httpx2.TransportError as error:
            return lost(error)
        return answer(response)


def usable(key: str) -> str:
    """Return a key, also an empty one, that can be sent.

    Raises:
        WrongKey: no HTTP header can hold it. It is not shown, as the HTTP library would.
    """
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise WrongKey(401, "it has line breaks, spaces at an end, or letters that no key has")
    return key


def detection(path: Path, key: str, sensitivity: Sensitivity) -> Flow[None]:
    """Return the flow that sends a file; the file is opened when the flow starts."""
    yield from _flows.detect(key, _media.opening(path, sensitivity), _media.chunks(path))


def body(call: Call) -> dict[str, Any]:
    """Return the arguments that make the body of a request."""
    if call.upload is None:
        return {"content": call.body}
    upload = call.upload
    file = (upload.name, upload.file, upload.content_type)
    return {"data": upload.fields, "files": {upload.part: file}, "timeout": UPLOAD_TIMEOUT}


def lost(error: httpx2.TransportError) -> Lost:
    """Return a failed request as a value."""
    return Lost(str(error) or type(error).__name__)


def answer(response: httpx2.Response) -> Answer:
    """Return what a flow needs of a response."""
    try:
        wait = float(response.headers.get("Retry-After", 0))
    except ValueError:
        # The other form of the header is a date; our own pauses do then.
        wait = 0.0
    return Answer(response.status_code, response.content, wait, response.headers.get("Earshot-Reason", ""))
