"""Notices that the source of a session sends no audio any more, and that it sends again."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from streams.sessions.store import SessionStore
from topics.errors import Unavailable
from topics.service_time import Served
from topics.sessions.capture import noted
from topics.sessions.records import SourceNoted
from topics.sessions.rules import SessionHead, SessionState

#: Service time (ms) without audio after which a source is lost.
LOST_MS: Final = 60_000
LOST: Final = "no audio for 60 s"


class SourceWatch:
    """Watches the open sessions of a node whose clients tell of their source (`SessionStore.watched`). Loop only."""

    def __init__(
        self,
        serving: Callable[[], Iterable[SessionStore]],
        append: Callable[[str, SourceNoted], asyncio.Future[Any]],
    ) -> None:
        """`serving` returns the stores served now; `append` puts a note on the log, and may raise Unavailable."""
        self._serving = serving
        self._append = append
        #: Notes that are not on the log yet, by session.
        self._sent: dict[str, asyncio.Future[Any]] = {}

    def look(self) -> None:
        """Note on the log what has changed; the fold judges it, so that it is noted once."""
        self._sent = {id: sent for id, sent in self._sent.items() if not sent.done()}
        for store in self._serving():
            if (served := store.presence.served) is None:
                continue
            for id in [id for id in store.watched if id not in self._sent and store.readable(id)]:
                head = store.peek(id)
                if head is None or head.state is not SessionState.WRITABLE:
                    store.watched.discard(id)
                elif (note := change(head, served)) is not None:
                    self._note(id, note)

    def _note(self, id: str, note: SourceNoted) -> None:
        try:
            sent = self._append(id, note)
        except Unavailable:
            return  # It is noticed again.
        sent.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._sent[id] = sent


def change(head: SessionHead, served: Served) -> SourceNoted | None:
    """Return what happened to the source of an open session by the service time, or None."""
    source = head.source
    if source is not None and noted(source, "source.lost", 0, told=False, now_ms=served.until)[1]:
        return None
    if source is None or source.event != "source.lost":
        silence = served.until - head.touched - served.absent_since(head.touched)
        return SourceNoted("watch", "source.lost", reason=LOST, seen=head.command) if silence > LOST_MS else None
    if source.told or head.touched <= source.at_ms:
        return None
    return SourceNoted("watch", "source.back", seen=head.command)
