"""The fold of session results: folds scored windows into blocks, and drops chunk rows that no later window needs."""

from collections.abc import Callable, Sequence

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.draft import Draft
from streams.folding.fold import Announce, Fold
from streams.folding.record import id_of
from streams.log import StoredRecord
from topics import keys, record_codec
from topics.errors import RecordError
from topics.folding import Effect, Verdict
from topics.rows import encode
from topics.sessions import rows
from topics.sessions.records import Scored, SessionResult, Tuned
from topics.sessions.rows import BLOCK_WINDOWS, Block
from topics.sessions.rules import TOO_OFTEN, SessionHead, fold_result, tuned

#: Returns the tags of a model; raises EarshotError for a model unknown on this node.
TagsOf = Callable[[str], Sequence[str]]


class SessionResults(Fold[SessionHead]):
    """Folds the session result topic. Loop only."""

    def __init__(self, announce: Announce, tags_of: TagsOf, verdicts: Verdicts | None = None) -> None:
        super().__init__(announce, verdicts)
        self.tags_of = tags_of
        #: Windows folded by this process, and those still in the batch.
        self.windows = 0
        self._fresh = 0

    def fold(self, draft: Draft[SessionHead], record: StoredRecord) -> None:
        """Fold one result; drop it if its session is gone."""
        result = record_codec.decode_result(record.value)
        session = id_of(record)
        head = draft.head(session)
        tags, windows = self._count(result)
        step = fold_result(head, result, windows)
        if isinstance(result, Tuned):
            refused = _write_rules(draft, session, result, head.windows) if head and step.effects else None
            self._answers.append((result.command, refused or step.verdict))
        if head is None or (step.head is head and draft.store.is_erased(head)):
            # Writing a tombstone again could remove its id from the index while rows are left to erase.
            return
        for effect in step.effects:
            if effect is Effect.KEEP_RESULT and isinstance(result, Scored) and step.head is not None:
                _write_windows(draft, session, result, tags)
                self.drop_audio(draft, session, range(result.dropped, result.cursor.keep))
                self._fresh += max(0, step.head.windows - head.windows)
            elif effect is not Effect.KEEP_REQUEST:
                self.carry_out(draft, session, effect, head, step.head)
        if step.head is not None:
            # Written even if unchanged: the changelog may lack what was folded before.
            draft.put_head(session, step.head, again=step.head == head)
        self.changes.changed[session] = None

    def forget(self) -> None:
        self._fresh = 0
        super().forget()

    def written(self) -> None:
        self.windows += self._fresh
        self._fresh = 0
        super().written()

    def _count(self, result: SessionResult) -> tuple[int, int]:
        """Return (tags, windows) of a record."""
        if not isinstance(result, Scored) or not result.scores:
            return 0, 0
        tags = result.tags or len(self.tags_of(result.model))
        if len(result.scores) % tags:
            raise RecordError(f"{len(result.scores)} bytes of scores are no whole windows of {tags} tags")
        return tags, len(result.scores) // tags


def _write_rules(draft: Draft[SessionHead], session: str, result: Tuned, first: int) -> Verdict | None:
    """Write rules for the windows from `first` on, also after a redelivery; return the verdict if rejected."""
    key = draft.store.row_key(session, keys.RULES)
    opened = rows.opened(draft.get(draft.store.row_key(session, keys.REQUEST)))
    if opened is None:
        return None
    changed = tuned(rows.with_rules(opened, draft.get(key)), result, first)
    draft.put(key, encode(changed.tuned))
    draft.put_request_row(session, changed)
    return None if any(one.command == result.command for one in changed.tuned) else TOO_OFTEN


def _write_windows(draft: Draft[SessionHead], session: str, result: Scored, tags: int) -> None:
    """Write windows at their position, over those of any earlier delivery."""
    first, scores, looks = result.first, result.scores, result.looks
    #: Bytes of the embedding kept with each window.
    size = len(looks) * tags // max(1, len(scores))
    while scores:
        number, inside = divmod(first, BLOCK_WINDOWS)
        key = draft.store.row_key(session, keys.RESULT, number)
        row = rows.block(draft.get(key))
        before = b"" if row is None else row.scores[: inside * tags]
        if len(before) != inside * tags:
            raise RecordError(f"block {number} holds {len(before)} bytes before window {first}")
        room = (BLOCK_WINDOWS - inside) * tags
        fresh, scores = scores[:room], scores[room:]
        after = b"" if row is None else row.scores[len(before) + len(fresh) :]
        count = len(fresh) // tags
        kept, looks = looks[: count * size], looks[count * size :]
        if size and row is not None:
            kept = row.looks[: inside * size] + kept + row.looks[(inside + count) * size :]
        draft.put(key, encode(Block(result.model, before + fresh + after, kept)))
        first += count
