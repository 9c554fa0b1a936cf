"""The fold of session results: folds scored windows into blocks, and drops chunks that no later window needs."""

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
from topics.sessions.rules import OVER, TOO_OFTEN, SessionHead, fold_result, tuned


class SessionResults(Fold[SessionHead]):
    """Folds the session result topic. Loop only."""

    def __init__(self, announce: Announce, verdicts: Verdicts | None = None) -> None:
        super().__init__(announce, verdicts)
        #: Windows folded by this process, and those still in the batch.
        self.windows = 0
        self._fresh = 0

    def fold(self, draft: Draft[SessionHead], record: StoredRecord) -> None:
        """Fold one result; drop it if its session is gone."""
        result = record_codec.decode_result(record.value)
        session = id_of(record)
        head = draft.head(session)
        tags, windows = _count(result)
        step = fold_result(head, result, windows)
        if isinstance(result, Tuned):
            refused = None
            if head is not None and (step.effects or step.verdict is OVER):
                refused = _write_rules(draft, session, result, head)
            self._answers.append((result.command, refused or step.verdict))
        if head is None or (step.head is head and draft.store.is_erased(head)):
            # Writing a tombstone again could remove its id from the index while rows are left to erase.
            return
        for effect in step.effects:
            if effect is Effect.KEEP_RESULT and isinstance(result, Scored) and step.head is not None:
                _write_windows(draft, session, result, tags)
                self.drop_audio(draft, session, head, range(result.dropped, result.cursor.keep))
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


def _count(result: SessionResult) -> tuple[int, int]:
    """Return (tags, windows) of a record."""
    if not isinstance(result, Scored) or not result.scores:
        return 0, 0
    size, tags = len(result.scores), result.tags
    if not tags or size % tags:
        raise RecordError(f"{size} bytes of scores are no whole windows of {tags} tags")
    return tags, size // tags


def _write_rules(draft: Draft[SessionHead], session: str, result: Tuned, head: SessionHead) -> Verdict | None:
    """Write rules for the next windows, also after a redelivery; return the verdict if rejected.

    Once the session has ended, write only rules that it took before: the changelog may lack them.
    """
    key = draft.store.row_key(session, keys.RULES)
    opened = rows.opened(draft.get(draft.store.row_key(session, keys.REQUEST)))
    if opened is None:
        return None
    known = rows.with_rules(opened, draft.get(key))
    changed = known if head.ended else tuned(known, result, head.windows)
    is_taken = any(one.command == result.command for one in changed.tuned)
    if head.ended and not is_taken:
        return OVER
    draft.put(key, encode(changed.tuned))
    draft.put_request_row(session, changed)
    return None if is_taken else TOO_OFTEN


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
