"""Writes new windows of sessions: to the changelog first, and to the table once the changelog has them.

So no reader sees windows that a crash could take back. Until then they can be computed again from the audio and the
cursor. Windows that were shown stay as they are, whatever another kind of processor would compute.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

import msgspec

from streams.alarms.watcher import Evaluated, Watcher
from streams.folding.awaited_verdicts import settle
from streams.folding.batch import write_draft
from streams.folding.draft import Draft
from streams.folding.fold import Fold
from streams.sessions.store import SessionStore
from streams.workers.process import StateLost
from topics import keys
from topics.errors import NotOwned, RecordError, Unavailable
from topics.rows import encode
from topics.sessions.analysis_rules import continues, grown
from topics.sessions.records import NewWindows, Opened
from topics.sessions.rows import BLOCK_WINDOWS, Block, Newest
from topics.sessions.rules import SessionHead

#: Seconds until rows are shown again after a full disk or while another owner's records are read.
RETRY_SECONDS: Final = 0.1


class _Coming(msgspec.Struct, eq=False):
    """Windows on their way to the changelog."""

    session: str
    store: SessionStore
    new: NewWindows
    at: int
    rows: Mapping[bytes, bytes]
    #: What they change in the rules of alarms.
    evaluated: Evaluated | None
    #: Called once readers see them, or with an error.
    shown: Callable[[Exception | None], None]


def _later(seconds: float, call: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    if seconds:
        loop.call_later(seconds, call)
    else:
        loop.call_soon(call)


class WindowWriter:
    """Writes what workers scored into the rows of sessions. Loop only; one write of a session at a time."""

    def __init__(
        self,
        store_of: Callable[[str], SessionStore],
        fold: Fold[SessionHead],
        may_show: Callable[[SessionStore], bool],
        later: Callable[[float, Callable[[], None]], object] = _later,
        watcher: Watcher | None = None,
    ) -> None:
        """Release audio and announce windows as `fold` does, and have the `watcher` evaluate rules of alarms.

        `may_show` returns whether the node may be read and the changelog is known to have no rows of a later owner; it
        raises NotOwned if the store's partition is elsewhere. `later` runs a callback after some seconds.
        """
        #: Windows shown by this process.
        self.windows = 0
        self._store_of = store_of
        self._fold = fold
        self._may_show = may_show
        self._later = later
        self._watcher = watcher
        self._coming: dict[str, _Coming] = {}
        #: What the changelog has and the tables not.
        self._logged: list[_Coming] = []

    def write(self, session: str, new: NewWindows) -> asyncio.Future[None]:
        """Write windows; the future is done once readers see them, or the session has ended. Raises what `put` does."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.put(session, new, partial(settle, done))
        return done

    def put(self, session: str, new: NewWindows, shown: Callable[[Exception | None], None]) -> None:
        """Write windows; call `shown` once readers see them, or the session has ended, or with an error.

        Raises:
            NotOwned: another node owns the partition.
            Unavailable: the partition is not ready.
            StateLost: the windows do not continue those of the session.
            RecordError: a row of the session cannot be read.
        """
        store = self._store_of(session)
        head = store.head(session)
        if head is None or head.ended:
            shown(None)
            return
        if not continues(head, new):
            raise StateLost
        at = store.partition.now_ms()
        evaluated = None if self._watcher is None else self._watcher.take(store, session, head, new, at)
        changes = b"" if evaluated is None else evaluated.changes
        rows = new_rows(store, session, grown(head, new, at), new, changes)
        if evaluated is not None and evaluated.rows:
            rows = {**evaluated.rows, **rows}
        coming = _Coming(session, store, new, at, rows, evaluated, shown)
        self._coming[session] = coming
        store.coming[session] = head.windows + new.count, rows
        # A session without a head would be a new one, whose first windows are made anew.
        first = None if new.first else store.row_key(session, keys.HEAD)
        store.partition.log_first(rows, partial(self._note, coming), first)

    def needs_level(self, opened: Opened) -> bool:
        """Return whether the level of a session's windows is asked for."""
        return self._watcher is not None and self._watcher.needs_level(opened)

    def lose(self, partitions: Collection[int]) -> None:
        """Give up what is on its way in lost partitions; the next owners find it in the changelog."""
        for coming in list(self._coming.values()):
            if coming.store.partition.number in partitions:
                self._end(coming, NotOwned("the partition is not here any more"))

    def _note(self, coming: _Coming) -> None:
        if self._coming.get(coming.session) is coming:
            self._logged.append(coming)
            coming.store.behind.add(coming.session)
            if len(self._logged) == 1:
                # Not at once: the windows of a group of the log are one write.
                self._later(0, self._show)

    def _show(self) -> None:
        """Write to the tables what their changelogs have."""
        by_store: dict[SessionStore, list[_Coming]] = {}
        for coming in self._logged:
            if self._coming.get(coming.session) is coming:
                by_store.setdefault(coming.store, []).append(coming)
        self._logged = []
        for store, some in by_store.items():
            try:
                if not self._may_show(store):
                    raise Unavailable("another owner may have written records")
                self._show_some(store, some)
            except NotOwned:
                pass  # `lose` ends them.
            except Unavailable:
                self._logged += some
        if self._logged:
            self._later(RETRY_SECONDS, self._show)

    def _show_some(self, store: SessionStore, some: list[_Coming]) -> None:
        draft, fold, count, evaluated = Draft(store), self._fold, 0, list[Evaluated]()
        for coming in some:
            draft.begin()
            session, new = coming.session, coming.new
            try:
                head = draft.head(session)
            except RecordError as error:
                self._end(coming, error)
                continue
            # It may have been deleted, or have failed.
            if head is None or head.ended or not continues(head, new):
                continue
            after = grown(head, new, coming.at)
            fold.drop_audio(draft, session, head, range(head.cursor.keep, after.cursor.keep))
            draft.show(session, after, coming.rows)
            draft.keep()
            fold.changes.changed[session] = None
            if after.unmetered:
                fold.changes.unbilled[session] = None
            count += new.count
            if coming.evaluated is not None:
                evaluated.append(coming.evaluated)
        write_draft(draft, fold)
        self.windows += count
        if self._watcher is not None:
            for one in evaluated:
                self._watcher.note(store, one)
        for coming in some:
            self._end(coming)

    def _end(self, coming: _Coming, error: Exception | None = None) -> None:
        if self._coming.get(coming.session) is coming:
            del self._coming[coming.session]
            coming.store.coming.pop(coming.session, None)
            coming.store.behind.discard(coming.session)
            coming.shown(error)


def new_rows(
    store: SessionStore, session: str, head: SessionHead, new: NewWindows, watched: bytes = b""
) -> dict[bytes, bytes]:
    """Return the rows of a session with new windows: its full blocks, then its newest windows with the head's part."""
    number, inside = divmod(new.first, BLOCK_WINDOWS)
    newest = store.newest(session)
    block = newest.block if newest is not None and inside else Block(new.model, b"", b"")
    if new.tags and len(block.scores) != inside * new.tags:
        raise RecordError(f"block {number} holds {len(block.scores)} bytes before window {new.first}")
    model, scores, embeddings = block.model, block.scores + new.scores, block.embeddings + new.embeddings
    full = BLOCK_WINDOWS * new.tags
    rows = {store.row_key(session, keys.NOTE, note.number): encode(note) for note in new.notes}
    while full and len(scores) >= full:
        kept = BLOCK_WINDOWS * len(embeddings) * new.tags // len(scores)
        rows[store.row_key(session, keys.RESULT, number)] = encode(Block(model, scores[:full], embeddings[:kept]))
        model, scores, embeddings, number = new.model, scores[full:], embeddings[kept:], number + 1
    rest = Block(model, scores, embeddings)
    row = Newest(head.windows, head.cursor, head.finished, head.analysed_at, head.silent, rest, head.heard, watched)
    rows[store.row_key(session, keys.NEWEST)] = encode(row)
    return rows
