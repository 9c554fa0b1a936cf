"""The methods of both clients for speakers."""

from . import _speaker_flows
from ._both import Calls, Result, both
from ._speaker_values import JobVoice, ReEnrollment, SpeakerProfile, SpeakerTurn
from ._uploads import Audio


class SpeakerCalls(Calls):
    """Methods for the speakers of an organization."""

    @both
    def speakers(self, *, timeout: float | None = None) -> Result[tuple[SpeakerProfile, ...]]:
        """Return the registered speakers of the organization by name, with the organization key.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the organization key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_speaker_flows.profiles(self._org_key), timeout)

    @both
    def add_voice(
        self, speaker: str, audio: Audio | JobVoice, *, timeout: float | None = None
    ) -> Result[SpeakerProfile]:
        """Add a voice sample to a speaker, with the organization key. The first sample creates the speaker.

        It is retried only if the service did nothing: else the sample may have been added.

        Args:
            speaker: a name of the letters A to Z and a to z, digits and underscores; `name_speaker` sets what people
                call the speaker.
            audio: a path or an open file with only this voice, from a second of speech up to ten minutes and 100 MB; or
                a speaker of a job's transcript.
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
        return self._run(_speaker_flows.add_voice(self._org_key, speaker, audio), timeout)

    @both
    def name_speaker(
        self, speaker: str, display_name: str | None, *, timeout: float | None = None
    ) -> Result[SpeakerProfile]:
        """Set what people call a speaker, with the organization key: lists and new transcripts of jobs show it.

        Args:
            speaker: the name.
            display_name: at most 100 printable characters; None for the name itself.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SpeakerRequestRefused: no speaker has this name.
            WrongKey: the service does not know the organization key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_speaker_flows.name(self._org_key, speaker, display_name), timeout)

    @both
    def delete_speaker(self, speaker: str, *, timeout: float | None = None) -> Result[None]:
        """Delete a speaker with all samples and recordings, with the organization key. It is never retried.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SpeakerRequestRefused: no speaker has this name.
            WrongKey: the service does not know the organization key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_speaker_flows.delete(self._org_key, speaker), timeout)

    @both
    def recognize(self, audio: Audio, *, timeout: float | None = None) -> Result[tuple[SpeakerTurn, ...]]:
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
        return self._run(_speaker_flows.recognize(self._org_key, audio), timeout)

    @both
    def re_enroll(self, speaker: str, *, timeout: float | None = None) -> Result[ReEnrollment]:
        """Enroll a speaker again with the service's current model, from the kept recordings of their samples.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SpeakerRequestRefused: no speaker has this name.
            EngineUnavailable: the speaker engine does not answer.
            WrongKey: the service does not know the organization key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_speaker_flows.re_enroll(self._org_key, speaker), timeout)
