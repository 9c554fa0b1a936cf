"""The client that blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from . import _job_flows, _session_flows, _speaker_flows
from ._job_stream import JobStream
from ._job_values import SOUNDS_AND_SPEECH, CaptionForm, Job, JobEvent, JobOptions, JobResult
from ._keys import checked_key
from ._session_values import DEFAULT_SENSITIVITY, Event, Sensitivity, Session, SessionOptions, SessionStatus
from ._speaker_values import ReEnrollment, SpeakerProfile, SpeakerTurn
from ._version import USER_AGENT

if TYPE_CHECKING:
    import httpx2


class Client:
    """A client that blocks. Threads may share it.

    >>> with Client("http://127.0.0.1:8000", key) as client:
    ...     for event in client.detect(Path("street.wav")):
    ...         print(event.start, event.end, event.sounds)

    A request without an answer, or that finds the service busy, is repeated up to five times within eight seconds,
    or later where the service asks for it by Retry-After. That is harmless: chunks and jobs carry an Idempotency-Key.
    Where it might not be, the method says that it does not.

    Time: `timeout` is the number of seconds that a whole call may take, with all its tries and pauses; for a method
    that yields, from the first event that is asked for to the last, with the time that the caller takes in between.
    When it passes, the call ends with DeadlineExceeded. It is then not known whether the service carried out the last
    request; a job that was accepted goes on. Whatever the `timeout`, a single request ends after 5 s without a
    connection, or after 30 s (600 s for a recording) in which no byte moved.

    Errors: each method that waits may raise DeadlineExceeded when its `timeout` passes, ServiceUnreachable when the
    last try had no answer, ServiceBusy when it found the service busy, and RequestRefused for any other error of the
    service. All of them are an EarshotClientError.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        org_key: str = "",
        user_agent: str = USER_AGENT,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a client. Nothing is sent yet.

        Args:
            url: where the service is, such as `http://127.0.0.1:8000`.
            key: the project key, which new sessions and jobs need.
            org_key: the organization key, which speakers need.
            user_agent: the User-Agent header; by default name and version of this package and of Python.
            transport: what carries requests, by default connections of httpx2; for proxies, certificates and tests.
            sleep: what waits for a number of seconds between two tries.

        Raises:
            WrongKey: a key has letters that no HTTP header can hold.
        """
        self._key = checked_key(key)
        self._org_key = checked_key(org_key)
        # Not at the top: httpx2 takes most of the time that loading this package would take.
        from ._connection import Connection

        self._connection = Connection(url, user_agent, transport, sleep)

    def create_session(self, options: SessionOptions, *, timeout: float | None = None) -> Session:
        """Open a session, with the project key. Without an answer it is not tried again: that might open two.

        Args:
            options: its kind, content type and sensitivity, which stay as they are.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            Its id, the number of its first chunk, and length and hop of its windows in seconds.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_session_flows.create(self._key, options), timeout)

    def put_chunk(self, session_id: str, sequence: int, data: bytes, *, timeout: float | None = None) -> int:
        """Upload the next chunk of a session.

        Args:
            sequence: its number, `Session.chunk_sequence` for the first one.
            data: at most 1 MiB of the session's content type; of a stream about half a second is best.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The number of the chunk after it.

        Raises:
            SessionClosed: the session takes no more chunks.
            SessionNotFound: the session never existed, was deleted or has expired.
            WrongSequence: another number is the next one.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_session_flows.put_chunk(session_id, sequence, data), timeout)

    def seal_session(self, session_id: str, *, timeout: float | None = None) -> None:
        """Make a session readonly: it takes no more chunks, and the analysis of a file starts.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        self._connection.run(_session_flows.seal(session_id), timeout)

    def delete_session(self, session_id: str, *, timeout: float | None = None) -> None:
        """Delete a session with its audio and events. One that does not exist is no error.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        self._connection.run(_session_flows.delete(session_id), timeout)

    def session_status(
        self, session_id: str, token: str | None = None, *, timeout: float | None = None
    ) -> SessionStatus:
        """Read the state of a session and one page of its events. With a token the service waits up to 9 s for one.

        Args:
            token: that of the page before; by default the first page is read.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            State, error and page; the page has the token of the next one.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_session_flows.status(session_id, token), timeout)

    def session_events(self, session_id: str, *, timeout: float | None = None) -> Iterator[Event]:
        """Yield every event of a session once, in order, as they come, until the session has ended.

        Args:
            timeout: seconds for all events together; no limit by default.

        Yields:
            An event for each window, with start and end in seconds.

        Raises:
            SessionFailed: the audio cannot be analysed; events of what came before have been yielded.
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.events(_session_flows.events(session_id), timeout)

    def detect(
        self, path: Path, sensitivity: Sensitivity = DEFAULT_SENSITIVITY, *, timeout: float | None = None
    ) -> Iterator[Event]:
        """Send a file as a session, with the project key, and yield its events.

        Args:
            path: a WAV, MP3, Ogg, FLAC or AIFF file. It is sent in chunks of 1 MiB and never held as a whole.
            sensitivity: how readily tags are reported.
            timeout: seconds for the upload and all events together; no limit by default.

        Yields:
            An event for each window, with start and end in seconds.

        Raises:
            UnknownFormat: the file is none of these.
            SessionFailed: the audio cannot be analysed; events of what came before have been yielded.
            WrongKey: the service does not know the project key.
            OSError: the file cannot be read.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.events(_session_flows.detect(self._key, path, sensitivity), timeout)

    def official_tags(self, *, timeout: float | None = None) -> tuple[str, ...]:
        """Return the names of all tags that the service's model knows.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_session_flows.official_tags(), timeout)

    def analyze_file(
        self,
        audio: Path | BinaryIO,
        options: JobOptions = SOUNDS_AND_SPEECH,
        *,
        name: str | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Job:
        """Send a recording as a job, with the project key. It is read and sent in pieces.

        Args:
            audio: a path, or a file open for reading bytes, which is read from its beginning and stays open.
            options: what the job is to do; sound events and speech by default.
            name: the file's name; by default its own.
            content_type: needed for raw PCM alone, such as `audio/x-raw; rate=16000; format=s16le`.
            idempotency_key: the same one with the same request returns the first job again; by default a new one.
            timeout: seconds for the upload, not for the job; no limit by default.

        Returns:
            The job with its id, before anything of it has ended.

        Raises:
            WrongKey: the service does not know the project key.
            QuotaExceeded: the project's free seconds of the month are spent.
            JobConflict: the Idempotency-Key was used for another request.
            OSError: the file cannot be read.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        flow = _job_flows.analyze(self._key, audio, options, name, content_type, idempotency_key)
        return self._connection.run(flow, timeout)

    def job(self, job_id: str, *, timeout: float | None = None) -> Job:
        """Read a job of the project, with what has ended so far.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            JobNotFound: the job never existed, was deleted or has expired, or belongs to another project.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_job_flows.job(self._key, job_id), timeout)

    def job_events(
        self, job_id: str, last_event_id: str | None = None, *, timeout: float | None = None
    ) -> Iterator[JobEvent]:
        """Yield the events of a job as they come, to the one that ends it. A stream that breaks off is taken up again.

        Args:
            job_id: the id of the job, which is the only secret here: no key is sent.
            last_event_id: `JobEvent.id` of the last event that is not wanted again; by default all are yielded.
            timeout: seconds for all events together; no limit by default.

        Yields:
            Events of the kinds `progress`, `partial_result` and, as the last one, `completed`.

        Raises:
            JobDeleted: the job was deleted meanwhile.
            JobNotFound: the job never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, RequestRefused.
        """
        return self._connection.job_events(JobStream(job_id, last_event_id, self._key), timeout)

    def job_result(self, job_id: str, *, timeout: float | None = None) -> JobResult:
        """Wait until a job has ended and return the results of all its services; `errors` has those that failed.

        Args:
            timeout: seconds to wait; no limit by default. The job goes on when they pass.

        Raises:
            JobDeleted: the job was deleted meanwhile.
            JobNotFound: the job never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, RequestRefused.
        """
        for event in self.job_events(job_id, timeout=timeout):
            last = event
        return last.result

    def job_captions(self, job_id: str, form: CaptionForm, *, timeout: float | None = None) -> str:
        """Return the captions of a job that has ended, as the text of a file.

        Args:
            form: `srt` for SubRip, `vtt` for WebVTT.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            JobConflict: the job has not ended.
            WrongKey: the service does not know the project key.
            JobNotFound: the job never existed, was deleted or has expired, or belongs to another project.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_job_flows.captions(self._key, job_id, form), timeout)

    def delete_job(self, job_id: str, *, timeout: float | None = None) -> None:
        """Delete a job with its recording and results; its usage stays. One that does not exist is no error.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        self._connection.run(_job_flows.delete(self._key, job_id), timeout)

    def speakers(self, *, timeout: float | None = None) -> tuple[SpeakerProfile, ...]:
        """Return the registered speakers of the organization by name, with the organization key.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the organization key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_speaker_flows.profiles(self._org_key), timeout)

    def add_voice(self, speaker: str, audio: Path | BinaryIO, *, timeout: float | None = None) -> SpeakerProfile:
        """Add a voice sample to a speaker, with the organization key. The first sample makes the speaker.

        Without an answer it is not tried again: the sample may have been added.

        Args:
            speaker: a name of letters, digits and underscores.
            audio: a path or an open file with this voice alone, of a second of speech to ten minutes and 100 MB.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The speaker with this sample.

        Raises:
            SpeakerRequestRefused: a rule is broken; the message names it.
            EngineUnavailable: the speaker engine does not answer; nothing was added.
            WrongKey: the service does not know the organization key.
            OSError: the file cannot be read.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_speaker_flows.add_voice(self._org_key, speaker, audio), timeout)

    def delete_speaker(self, speaker: str, *, timeout: float | None = None) -> None:
        """Delete a speaker with all samples and recordings, with the organization key. It is never tried again.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SpeakerRequestRefused: no speaker has this name.
            WrongKey: the service does not know the organization key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        self._connection.run(_speaker_flows.delete(self._org_key, speaker), timeout)

    def recognize(self, audio: Path | BinaryIO, *, timeout: float | None = None) -> tuple[SpeakerTurn, ...]:
        """Return who speaks when in a recording, with the organization key.

        Args:
            audio: a path or an open file of at most 100 MB and ten minutes; longer recordings are for jobs.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The turns in the order of the recording, with start and end in milliseconds.

        Raises:
            SpeakerRequestRefused: a rule is broken; the message names it.
            EngineUnavailable: the speaker engine does not answer.
            WrongKey: the service does not know the organization key.
            OSError: the file cannot be read.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_speaker_flows.recognize(self._org_key, audio), timeout)

    def re_enroll(self, speaker: str, *, timeout: float | None = None) -> ReEnrollment:
        """Enroll a speaker again with the service's present model, from the recordings that were kept of their samples.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SpeakerRequestRefused: no speaker has this name.
            EngineUnavailable: the speaker engine does not answer.
            WrongKey: the service does not know the organization key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._connection.run(_speaker_flows.re_enroll(self._org_key, speaker), timeout)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
