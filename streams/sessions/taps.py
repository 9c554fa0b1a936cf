"""Who listens to which sessions: the analyser makes levels and spectrograms for them alone, and nothing for nobody."""

from collections import Counter, OrderedDict
from typing import Final

from streams.audio.levels import SEGMENT_MS, SoundMeter
from topics.ports.live import WindowSound
from topics.sessions.records import Opened

#: Sessions whose sound is remembered, some 10 KiB each, 60 KiB with a spectrogram; of further ones the oldest give way.
MOST_METERS: Final = 1024


class Taps:
    """The meters of the sessions that somebody listens to. Loop only."""

    def __init__(self) -> None:
        #: Somebody listens to something.
        self.watched = False
        #: Listeners by project, and by session: these want the spectrogram too.
        self._projects: Counter[str] = Counter()
        self._sessions: Counter[str] = Counter()
        #: By session: how it was opened, whether each of its windows is of audio of its own, and the meter.
        self._meters: OrderedDict[str, tuple[Opened, bool, SoundMeter]] = OrderedDict()

    def listen(self, project: str | None = None, session: str | None = None) -> None:
        """Count a listener of a project, of a session, or of one session of a project in more detail."""
        for listeners, id in ((self._projects, project), (self._sessions, session)):
            if id is not None:
                listeners[id] += 1
        self.watched = True

    def leave(self, project: str | None = None, session: str | None = None) -> None:
        """Count a listener no longer, and forget what nobody else listens to."""
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

    def meter(self, session: str, opened: Opened, predicts: bool) -> SoundMeter | None:
        """Return the meter that a session's audio is to be fed to, None where nobody listens."""
        drawn = session in self._sessions
        if not drawn and opened.project not in self._projects:
            return None
        known = self._meters.get(session)
        if known is None:
            known = self._meters[session] = opened, predicts, SoundMeter()
            if len(self._meters) > MOST_METERS:
                self._meters.popitem(last=False)
        known[-1].draws = drawn
        return known[-1]

    def window(self, session: str, number: int) -> WindowSound | None:
        """Return what a window of a session sounded like, None where that is not known."""
        known = self._meters.get(session)
        if known is None:
            return None
        opened, predicts, meter = known
        count, hop = opened.window_ms // SEGMENT_MS, opened.hop_ms // SEGMENT_MS
        if predicts:  # Windows of audio of their own lie one behind the other.
            return meter.window(number * count, count, count)
        return meter.window(number * hop, count, count if number == 0 else hop)

    def forget(self, session: str) -> None:
        self._meters.pop(session, None)
