"""The methods of both clients for jobs."""

from typing import cast

from . import _job_flows
from ._both import Calls, Result, Results, both
from ._job_stream import JobStream
from ._job_values import (
    SOUNDS_AND_SPEECH,
    AudioLink,
    CaptionForm,
    Job,
    JobEntry,
    JobEvent,
    JobResult,
    JobScores,
)
from ._list_values import LONGEST_PAGE, JobPage, all_pages, list_query
from ._service_values import JobOptions
from ._times import Time
from ._uploads import Audio


class JobCalls(Calls):
    """Methods for jobs."""

    @both
    def analyze_file(
        self,
        audio: Audio,
        options: JobOptions = SOUNDS_AND_SPEECH,
        *,
        name: str | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Result[Job]:
        """Send a recording as a job, with the project key. It is read and sent in pieces.

        Args:
            audio: a path, a recording's bytes, or a file open for reading bytes, which is read from its beginning and
                stays open.
            options: options of the job; by default sound events and speech.
            name: the file's name; by default its own.
            content_type: only needed for raw PCM, such as `audio/x-raw; rate=16000; format=s16le`.
            idempotency_key: the same key with the same request returns the first job again; by default a new key.
            timeout: seconds for the upload, not for the job; no limit by default.

        Returns:
            The job with its id, before any of its services has ended.

        Raises:
            WrongKey: the service does not know the project key.
            UnknownFormat: it is not a readable recording.
            QuotaExceeded: the project's free seconds of the month are spent.
            JobConflict: the Idempotency-Key was used for another request.
            OSError: the file cannot be read.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        flow = _job_flows.analyze(self._key, audio, options, name, content_type, idempotency_key)
        return self._run(flow, timeout)

    @both
    def analyze(
        self,
        audio: bytes,
        samplerate: int,
        options: JobOptions = SOUNDS_AND_SPEECH,
        *,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Result[Job]:
        """Send a recording as a job in one piece of JSON, with the project key. `analyze_file` takes larger recordings.

        Args:
            audio: a whole recording, as in the file.
            samplerate: its rate in Hz.
            options: options of the job; by default sound events and speech.
            content_type: only needed for raw PCM, such as `audio/x-raw; format=s16le`.
            idempotency_key: the same key with the same request returns the first job again; by default a new key.
            timeout: seconds for the upload, not for the job; no limit by default.

        Returns:
            The job with its id, before any of its services has ended.

        Raises:
            WrongKey: the service does not know the project key.
            UnknownFormat: it is not a readable recording.
            QuotaExceeded: the project's free seconds of the month are spent.
            JobConflict: the Idempotency-Key was used for another request.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        flow = _job_flows.analyze_samples(self._key, audio, samplerate, options, content_type, idempotency_key)
        return self._run(flow, timeout)

    @both
    def job(self, job_id: str, *, timeout: float | None = None) -> Result[Job]:
        """Read a job of the project, with the results so far.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            JobNotFound: the job never existed, was deleted or has expired, or belongs to another project.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_job_flows.job(self._key, job_id), timeout)

    @both
    def job_events(
        self, job_id: str, last_event_id: str | None = None, *, timeout: float | None = None
    ) -> Results[JobEvent]:
        """Yield the events of a job as they come, until it ends.

        A stream that breaks off is resumed, unless the service does not answer for five minutes.

        Args:
            job_id: the id of the job, which is the secret that opens its events.
            last_event_id: `JobEvent.id` of the event to resume after; by default all events are yielded.
            timeout: seconds for all events together; no limit by default.

        Yields:
            Events of the kinds `progress`, `partial_result` and, as the last one, `completed`.

        Raises:
            JobDeleted: the job was deleted meanwhile.
            JobNotFound: the job never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, RequestRefused.
        """
        return self._server_events(JobStream(job_id, last_event_id, self._key), timeout)

    @both
    def job_result(self, job_id: str, *, timeout: float | None = None) -> Result[JobResult]:
        """Wait until a job ends and return the results of all its services; `errors` has the failed ones.

        The wait goes on while the service restarts, for up to five minutes.

        Args:
            timeout: seconds to wait; no limit by default. The job goes on after them.

        Raises:
            JobDeleted: the job was deleted meanwhile.
            JobNotFound: the job never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, RequestRefused.
        """
        return cast("Result[JobResult]", self._connection.job_result(JobStream(job_id, None, self._key), timeout))

    @both
    def job_captions(self, job_id: str, form: CaptionForm, *, timeout: float | None = None) -> Result[str]:
        """Return the captions of a job that has ended, as the text of a file.

        Args:
            form: `srt` for SubRip, `vtt` for WebVTT.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            ValueError: `form` is neither.
            JobConflict: the job has not ended.
            WrongKey: the service does not know the project key.
            JobNotFound: the job never existed, was deleted or has expired, or belongs to another project.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_job_flows.captions(self._key, job_id, form), timeout)

    @both
    def job_scores(self, job_id: str, *, timeout: float | None = None) -> Result[JobScores]:
        """Return the scores of all sounds in all windows of a job: they show what another threshold would report.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            JobConflict: the sound events have not ended.
            WrongKey: the service does not know the project key.
            JobNotFound: there is no such job of the project, or it requested no sound events.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_job_flows.scores(self._key, job_id), timeout)

    @both
    def job_audio_link(self, job_id: str, *, timeout: float | None = None) -> Result[AudioLink]:
        """Make a link to the recording of a job whose audio is kept, for downloads and players. It needs no key.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            JobNotFound: there is no such job of the project, or its audio is not kept.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_job_flows.audio_link(self._key, job_id), timeout)

    @both
    def delete_job(self, job_id: str, *, timeout: float | None = None) -> Result[None]:
        """Delete a job with its recording and results; its usage stays. A missing job is not an error.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_job_flows.delete(self._key, job_id), timeout)

    @both
    def list_jobs(
        self,
        token: str | None = None,
        *,
        state: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> Result[JobPage]:
        """Read a page of the project's jobs, newest first.

        Args:
            token: the token from the previous page, which includes its filters; by default the first page is read.
            state: `accepted`, `processing` or `completed`, or several separated by commas; all by default.
            since: accepted at or after this time, a `datetime` or text in ISO 8601.
            until: accepted before this time.
            count: the most jobs to return, 1 to 200; 50 by default.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        query = list_query(token, state, since, until, count)
        return self._run(_job_flows.listing(self._key, query), timeout)

    @both
    def jobs(
        self,
        *,
        state: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        timeout: float | None = None,
    ) -> Results[JobEntry]:
        """Yield all of the project's jobs, newest first, page by page.

        Args:
            state: `accepted`, `processing` or `completed`; all by default.
            since: accepted at or after this time, a `datetime` or text in ISO 8601.
            until: accepted before this time.
            timeout: seconds for all of them together; no limit by default.

        Raises:
            IncompleteList: a node did not answer; the other nodes' jobs were yielded before.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._items(
            all_pages(
                lambda token: _job_flows.listing(self._key, list_query(token, state, since, until, LONGEST_PAGE))
            ),
            timeout,
        )
