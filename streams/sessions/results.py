"""The results agent: folds scored windows into blocks, advances the head, drops chunk rows that are done with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from streams.folding.fold import LogRecord, name_of
from streams.folding.references import References
from streams.folding.store import Draft
from topics import codec, keys, rows
from topics.errors import RecordError
from topics.sessions.records import Failed, Scored
from topics.sessions.rows import BLOCK_WINDOWS, Block
from topics.sessions.rows import block as block_row
from topics.sessions.rules import SessionHead, fold_result

#: The tags of a model; raises EarshotError for a model that this node does not know.
TagsOf = Callable[[str], Sequence[str]]


class Results:
    """Folds the records of the result topic; one object for all partitions of a node."""

    def __init__(self, tags_of: TagsOf, references: References, notify: Callable[[Iterable[str]], None]) -> None:
        self.tags_of = tags_of
        self.references = references
        self.notify = notify
        self.windows = 0
        self._changed: dict[str, None] = {}

    def fold(self, draft: Draft[SessionHead], record: LogRecord) -> None:
        """Fold one result; one for a session that is gone is dropped."""
        result = codec.decode_result(record.value)
        session = name_of(record)
        head = draft.head(session)
        tags, windows = self._count(result)
        outcome = fold_result(head, result, windows)
        if head is None or outcome.head is None:
            return
        if isinstance(result, Scored) and head.error is None:
            _write_windows(draft, session, result, tags)
            self._drop_chunks(draft, session, result.dropped, result.cursor.keep)
            self.windows += max(0, outcome.head.windows - head.windows)
        if isinstance(result, Failed):
            self._drop_chunks(draft, session, head.cursor.keep, head.next)
        draft.put_head(session, outcome.head)
        self._changed[session] = None

    def _count(self, result: Scored | Failed) -> tuple[int, int]:
        """Return (tags, windows) of a record."""
        if isinstance(result, Failed) or not result.scores:
            return 0, 0
        tags = result.tags or len(self.tags_of(result.model))
        if len(result.scores) % tags:
            raise RecordError(f"{len(result.scores)} bytes of scores are no whole windows of {tags} tags")
        return tags, len(result.scores) // tags

    def _drop_chunks(self, draft: Draft[SessionHead], session: str, first: int, stop: int) -> None:
        """No later window needs these chunks: let the log go on without them."""
        partition = draft.store.partition.number
        for sequence in range(first, stop):
            key = keys.session_key(session, keys.CHUNK, sequence)
            if (row := rows.audio(draft.get(key))) is not None:
                self.references.discard(partition, row.offset)
            draft.delete(key)

    async def written(self, partition: int) -> None:
        """Wake the readers of the sessions of the batch."""
        changed, self._changed = self._changed, {}
        self.notify(changed)

    def dropped(self, record: LogRecord, cause: str) -> None:
        """Nothing waits for a single result."""


def _write_windows(draft: Draft[SessionHead], session: str, result: Scored, tags: int) -> None:
    """Write windows at their place, over whatever an earlier delivery left there."""
    first, scores = result.first, result.scores
    while scores:
        number, inside = divmod(first, BLOCK_WINDOWS)
        key = keys.session_key(session, keys.BLOCK, number)
        known = block_row(draft.get(key))
        before = b"" if known is None else known.scores[: inside * tags]
        if len(before) != inside * tags:
            raise RecordError(f"block {number} holds {len(before)} bytes before window {first}")
        room = (BLOCK_WINDOWS - inside) * tags
        fresh, scores = scores[:room], scores[room:]
        after = b"" if known is None else known.scores[len(before) + len(fresh) :]
        draft.put(key, rows.encode(Block(result.model, before + fresh + after)))
        first += len(fresh) // tags
