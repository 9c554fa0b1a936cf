"""The event streams of one session, or of all sessions of a project."""

from __future__ import annotations

import msgspec

from ._calls import Answer, checked, segment
from ._errors import SESSION_ERRORS
from ._event_stream import EventStream
from ._json import decoded
from ._live_values import LiveEvent


class _Begin(msgspec.Struct, frozen=True):
    next_window: int | None = None


class LiveStream(EventStream[LiveEvent]):
    """Live events. If a session has moved to another node, the next connection resumes there."""

    @classmethod
    def of_session(cls, key: str, session_id: str, first: int | None) -> LiveStream:
        """Return the stream of a session from window `first` on, by default the next window."""
        query = {} if first is None else {"from": str(first)}
        stream = cls(f"/audio_sessions/{segment(session_id)}/live", key, query=query)
        stream.last = frozenset({"ended", "deleted"})
        return stream

    @classmethod
    def of_project(cls, key: str, strips: str | None) -> LiveStream:
        """Return the stream of a project, with the spectrogram of the session `strips`, if given."""
        return cls("/api/v1/live", key, query={} if strips is None else {"strips": strips})

    def event(self, kind: str, data: bytes, id: str | None) -> LiveEvent:
        """Build an event; note where a session's stream begins, because only its windows have ids."""
        if kind == "session" and not id and self.last:
            begin = decoded(data, _Begin).next_window
            self._query = self._query if begin is None else {"from": str(begin)}
        return LiveEvent(kind, data)

    def check(self, answer: Answer) -> None:
        """Raise the error for an answer that is not a stream.

        Raises:
            RequestRefused: the answer is an error.
        """
        checked(answer, SESSION_ERRORS)
