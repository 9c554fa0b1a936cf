"""Tracks listeners to sessions: the analyser measures levels and spectrograms only for them."""

from collections import Counter, OrderedDict
from typing import Final

from streams.audio.levels import SEGMENT_MS, SoundMeter
from topics.ports.live import WindowSound
from topics.sessions.records import Opened

#: Sessions with a meter, some 10 KiB each, 60 KiB with a spectrogram; beyond this the oldest are evicted.
MOST_METERS: Final = 1024


class Taps:
    """The meters of sessions with listeners. Loop only."""

    def __init__(self) -> None:
        #: Whether there is any listener.
        self.watched = False
        #: Listeners by project, and by session; the latter also get the spectrogram.
        self._projects: Counter[str] = Counter()
        self._sessions: Counter[str] = Counter()
        #: By session: its opening, whether each window has separate audio, and the meter.
        self._meters: OrderedDict[str, tuple[Opened, bool, SoundMeter]] = OrderedDict()

    def listen(self, project: str | None = None, session: str | None = None) -> None:
        """Add a listener to a project, a session, or a project with more detail on one session."""
        for listeners, id in ((self._projects, project), (self._sessions, session)):
            if id is not None:
                listeners[id] += 1
        self.watched = True

    def leave(self, project: str | None = None, session: str | None = None) -> None:
        """Remove a listener, and drop the meters without any."""
        for listeners, id in ((self._projects, project), (self._sessions, session)):
            if id is not None:
                listeners[id] -= 1
                if not listeners[id]:
                    del listeners[id]
        self.watched = bool(self._projects or self._sessions)
        for id, (opened, _, meter) in list(self._meters.items()):
            meter.draws = id in self._sessions
            if not meter.draws and opened.project not in self._projects:
                del self._meters[id]

    def meter(
        self, session: str, opened: Opened, predicts: bool, running: SoundMeter | None = None
    ) -> SoundMeter | None:
        """Return the meter for a session's audio, for a new listener the `running` one; None if nobody listens."""
        drawn = session in self._sessions
        if not drawn and opened.project not in self._projects:
            return None
        known = self._meters.get(session)
        if known is None:
            known = self._meters[session] = opened, predicts, running or SoundMeter()
            if len(self._meters) > MOST_METERS:
                self._meters.popitem(last=False)
        known[-1].draws = drawn
        return known[-1]

    def window(self, session: str, number: int) -> WindowSound | None:
        """Return the level and spectrogram of a session's window; None if unknown."""
        known = self._meters.get(session)
        if known is None:
            return None
        opened, predicts, meter = known
        count, hop = opened.window_ms // SEGMENT_MS, segments_of_hop(opened, predicts)
        return meter.window(number * hop, count, count if predicts or number == 0 else hop)

    def forget(self, session: str) -> None:
        self._meters.pop(session, None)


def segments_of_hop(opened: Opened, predicts: bool) -> int:
    """Return how many segments lie between the starts of two windows; those with separate audio follow one another."""
    return (opened.window_ms if predicts else opened.hop_ms) // SEGMENT_MS
