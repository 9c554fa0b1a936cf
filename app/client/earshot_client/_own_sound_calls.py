"""The methods of both clients for the project's own sounds."""

from . import _own_sound_flows
from ._both import Calls, Result, Results, both
from ._own_sound_values import FoundPassage, OwnSound


class OwnSoundCalls(Calls):
    """Methods for the sounds that the project teaches, with the project key."""

    @both
    def own_sounds(self, *, timeout: float | None = None) -> Result[tuple[OwnSound, ...]]:
        """Return the sounds that the project teaches, by name, with their marks and figures.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_own_sound_flows.sounds(self._key), timeout)

    @both
    def mark_sound(
        self,
        sound: str,
        start: float,
        end: float,
        *,
        job_id: str | None = None,
        session_id: str | None = None,
        right: bool = True,
        timeout: float | None = None,
    ) -> Result[OwnSound]:
        """Mark a passage of a job's recording or of a session. The first mark of a sound creates it.

        The audio must have been analysed while the project had `keep_embeddings`.

        Args:
            sound: a capital letter, then letters, digits and underscores.
            start: seconds from the beginning of the audio.
            end: at most 30 s later.
            job_id: the job; or give the session.
            session_id: the session.
            right: True if the sound is there, False if the passage only resembles it.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The sound with this mark.

        Raises:
            ValueError: not exactly one of `job_id` and `session_id` is given.
            SoundConflict: the passage is not analysed yet, nothing was kept to learn from, or a limit is reached.
            SoundNotFound: the project has no such job or session.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        place = _own_sound_flows.place(sound, job_id, session_id)
        return self._run(_own_sound_flows.mark(self._key, place, start, end, right), timeout)

    @both
    def delete_mark(self, sound: str, mark_id: str, *, timeout: float | None = None) -> Result[None]:
        """Delete a mark; it has no effect until the sound is learnt again. A missing mark is not an error.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_own_sound_flows.delete_mark(self._key, sound, mark_id), timeout)

    @both
    def learn_sound(self, sound: str, *, timeout: float | None = None) -> Result[OwnSound]:
        """Learn a sound from its marks, in some seconds. It needs ten passages or more.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The sound with its new figures.

        Raises:
            SoundNotFound: the project teaches no such sound.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_own_sound_flows.learn(self._key, sound), timeout)

    @both
    def find_sound(
        self,
        sound: str,
        start: int = 0,
        *,
        job_id: str | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> Results[FoundPassage]:
        """Yield where a sound would be reported in a job's recording or in a session if it were on.

        Args:
            start: where to begin, seconds from the beginning of the audio.
            job_id: the job; or give the session.
            session_id: the session.
            timeout: seconds for all passages together; no limit by default.

        Raises:
            ValueError: not exactly one of `job_id` and `session_id` is given.
            SoundConflict: the sound is not learnt, or nothing was kept to search in.
            SoundNotFound: the project has no such sound, job or session, or another model analysed the audio.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        place = _own_sound_flows.place(sound, job_id, session_id)
        return self._items(_own_sound_flows.find(self._key, place, start), timeout)

    @both
    def switch_sound(self, sound: str, on: bool, *, timeout: float | None = None) -> Result[OwnSound]:
        """Switch the reports of a sound on or off, for new sessions and jobs; on other nodes within minutes.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SoundConflict: the sound is not learnt, or too many sounds are on.
            SoundNotFound: the project teaches no such sound.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_own_sound_flows.switch(self._key, sound, on), timeout)

    @both
    def delete_sound(self, sound: str, *, timeout: float | None = None) -> Result[None]:
        """Delete a sound with its marks and what was learnt. It is retried only if nothing was done.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SoundNotFound: the project teaches no such sound.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_own_sound_flows.delete(self._key, sound), timeout)
