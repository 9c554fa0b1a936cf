"""The base of all folds: carries out effects, and announces each batch after its write."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

import msgspec

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.draft import Draft
from streams.folding.head_store import H, HeadStore, audio_offsets
from streams.folding.record import id_of
from streams.log import StoredRecord
from topics import keys
from topics.errors import Damaged, RecordError
from topics.folding import Answer, Effect, first_recent


class Changes(msgspec.Struct):
    """The changes of a batch, by id. `gone` is handled first: a job may be removed and created again."""

    gone: dict[str, None] = {}
    #: All changed ids, for waiting readers.
    changed: dict[str, None] = {}
    #: Ids with audio to analyse, or a service to run.
    work: dict[str, None] = {}
    unbilled: dict[str, None] = {}
    #: Ids with more rows to delete than one batch deletes.
    leftovers: dict[str, None] = {}


Announce = Callable[[Changes], None]


class Fold(ABC, Generic[H]):
    """Folds the records of one topic; one object for all partitions of a node. Loop only."""

    def __init__(self, announce: Announce, verdicts: Verdicts | None = None) -> None:
        """Start with an empty batch; `verdicts` passes verdicts to waiting requests."""
        self.announce = announce
        self.changes = Changes()
        self._verdicts = verdicts
        #: Verdicts of the batch, by the ids of their commands.
        self._answers: list[tuple[str, Answer]] = []

    @staticmethod
    @abstractmethod
    def decode(value: bytes | None) -> Any:
        """Decode a record of the topic; raise RecordError if that is impossible."""

    @abstractmethod
    def fold(self, draft: Draft[H], record: StoredRecord) -> None:
        """Fold one record into the draft; raise RecordError if it can never be folded."""

    def content(self, record: StoredRecord) -> Any:
        """Return what a record says; raise RecordError if it cannot be decoded."""
        return self.decode(record.value) if record.content is None else record.content

    def whose(self, record: StoredRecord) -> tuple[str, Any] | None:
        """Return the id and the content of a record, None if the record itself cannot be read."""
        try:
            return id_of(record), self.content(record)
        except RecordError:
            return None

    def set_aside(self, store: HeadStore[H], id: str, content: Any, error: Exception) -> None:
        """Answer a command that cannot be folded, and refuse later ones on its id."""
        store.set_aside(id, error)
        if self._verdicts is not None and (command := getattr(content, "command", None)):
            self._verdicts.resolve(command, Damaged())

    def written(self) -> None:
        """Resolve the verdicts of a written batch, and announce its changes."""
        answers, self._answers = self._answers, []
        if self._verdicts is not None:
            for command, verdict in answers:
                self._verdicts.resolve(command, verdict)
        changes, self.changes = self.changes, Changes()
        if changes.changed:
            self.announce(changes)

    def carry_out(self, draft: Draft[H], id: str, effect: Effect, before: H | None, head: H | None) -> None:
        """Carry out one effect of a step between two heads, unless the effect needs the record."""
        match effect:
            case Effect.WORK:
                self.changes.work[id] = None
            case Effect.BILL:
                self.changes.unbilled[id] = None
            case Effect.CANCEL:
                self.changes.gone[id] = None
                self.changes.work.pop(id, None)
            case Effect.DROP_AUDIO if before is not None:
                self.drop_audio(draft, id, before, before.audio)
            case Effect.RECALL:
                # Those in the table supersede those on their way.
                for key in draft.store.on_way(id):
                    if (value := draft.get(key)) is None:
                        draft.delete(key)
                    else:
                        draft.put(key, value)
            case Effect.ERASE:
                draft.store.aside.pop(id, None)
                if not draft.erase(id, head):
                    self.changes.leftovers[id] = None

    def drop_audio(self, draft: Draft[H], id: str, head: H, numbers: range) -> None:
        """Release chunks or parts that are no longer needed and delete their rows, so that the log can be trimmed.

        `HeadStore.purge` deletes those beyond `HeadStore.most_dropped`, some at a time.
        """
        recent = dict(enumerate(head.recent, first_recent(head)))
        for number in recent:
            if number in numbers:
                draft.release(recent[number].offset)
        numbered = [number for number in numbers if number not in recent]
        most = draft.store.most_dropped
        if len(numbered) > most:
            draft.leave(id)
            self.changes.leftovers[id] = None
        for number in numbered[:most]:
            key = draft.store.row_key(id, keys.AUDIO, number)
            for offset in audio_offsets([draft.get(key)]):
                draft.release(offset)
            draft.delete(key)

    def release(self, store: HeadStore[H], offset: int) -> None:
        """Release the audio at an offset; its results are in the table."""
        store.references.discard(offset)

    def forget(self) -> None:
        """Discard a batch that could not be written; it is folded again."""
        self._answers.clear()
        self.changes = Changes()
