"""The base of all folds: it carries out effects, and announces each batch once it is written."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic

import msgspec

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.draft import Draft
from streams.folding.head_store import H, HeadStore
from streams.log import StoredRecord
from topics import keys, rows
from topics.folding import Effect, Verdict


class Changes(msgspec.Struct):
    """The changes of a batch, by id. `gone` comes before the rest: a job may be removed and come again."""

    gone: dict[str, None] = {}
    #: All of them: what readers wait for.
    changed: dict[str, None] = {}
    #: There is something to analyse, or a service to run.
    work: dict[str, None] = {}
    unbilled: dict[str, None] = {}
    #: They are erased, except rows that are too many for one batch.
    leftovers: dict[str, None] = {}


Announce = Callable[[Changes], None]


class Fold(ABC, Generic[H]):
    """Folds the records of one topic; one object for all partitions of a node. Loop only."""

    def __init__(self, announce: Announce, verdicts: Verdicts | None = None) -> None:
        """Begin with no batch; who waits for a verdict gets it by `verdicts`."""
        self.announce = announce
        self.changes = Changes()
        self._verdicts = verdicts
        #: Verdicts of the batch, by the ids of their commands.
        self._answers: list[tuple[str, Verdict]] = []

    @abstractmethod
    def fold(self, draft: Draft[H], record: StoredRecord) -> None:
        """Fold one record into the draft; raise RecordError for one that can never be folded."""

    def written(self) -> None:
        """Resolve the verdicts of the batch and announce what it changed; it is in the table."""
        answers, self._answers = self._answers, []
        if self._verdicts is not None:
            for command, verdict in answers:
                self._verdicts.resolve(command, verdict)
        changes, self.changes = self.changes, Changes()
        if changes.changed:
            self.announce(changes)

    def carry_out(self, draft: Draft[H], id: str, effect: Effect, before: H | None, head: H | None) -> None:
        """Carry out one effect of a step that leads from one head to another, unless it needs the record."""
        match effect:
            case Effect.WORK:
                self.changes.work[id] = None
            case Effect.BILL:
                self.changes.unbilled[id] = None
            case Effect.CANCEL:
                self.changes.gone[id] = None
                self.changes.work.pop(id, None)
            case Effect.DROP_AUDIO if before is not None:
                self.drop_audio(draft, id, before.audio)
            case Effect.ERASE:
                if not draft.erase(id, head):
                    self.changes.leftovers[id] = None

    def drop_audio(self, draft: Draft[H], id: str, numbers: Iterable[int]) -> None:
        """Delete the rows of chunks or parts that nobody will read, and let the log be trimmed."""
        for number in numbers:
            key = draft.store.row_key(id, keys.AUDIO, number)
            if (row := rows.audio(draft.get(key))) is not None:
                draft.release(row.offset)
            draft.delete(key)

    def release(self, store: HeadStore[H], offset: int) -> None:
        """Release the audio at an offset; its results are in the table."""
        store.references.discard(offset)

    def forget(self) -> None:
        """Forget the batch: it could not be written, and is folded again."""
        self._answers.clear()
        self.changes = Changes()
