"""Evaluates the rules of alarms over new windows of live sessions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from streams.alarms.alarm_rows import AlarmRows, decoded_changes, encoded_changes
from topics.alarms.alarms import Alarm
from topics.alarms.evaluation import Heard, Watch, Watched, evaluate, needs_level
from topics.alarms.rules import StoredRule
from topics.alarms.tags import Classes
from topics.ports.alarms import Rules
from topics.sessions.capture import CaptureTime
from topics.sessions.records import NewWindows, Opened
from topics.sessions.rows import Newest
from topics.sessions.rules import SessionHead

#: Projects whose need of levels is remembered.
MOST_PROJECTS: Final = 4096


class Watching(msgspec.Struct, eq=False):
    """What is in memory of the rules of a session; its rows say the same."""

    rules: Sequence[StoredRule]
    watch: Watch
    #: As the changelog and the table have it: its row, and encoded what changed since.
    state: Watched
    row: Watched
    changes: bytes


class Watchable(Protocol):
    """The sessions of a partition, as `streams.sessions.store` has them."""

    @property
    def alarms(self) -> AlarmRows: ...

    def opened(self, session: str) -> Opened | None: ...

    def newest(self, id: str) -> Newest | None: ...

    def time_of(self, session: str, position_ms: int) -> CaptureTime: ...

    def watching(self, session: str) -> Watching | None: ...

    def watch(self, session: str, watching: Watching) -> None: ...


class Tags(Protocol):
    """The tags of models, as `streams.models.loaded_models` has them."""

    def tags(self, model: str) -> Sequence[str]: ...

    def classes(self, model: str) -> Classes: ...


class Evaluated(msgspec.Struct, eq=False):
    """What new windows make of the rules of a session."""

    watching: Watching
    #: As in `Watching`, once the windows are shown.
    state: Watched
    row: Watched
    changes: bytes
    alarms: Sequence[Alarm] = ()
    #: To be logged before the windows, if there are alarms.
    rows: dict[bytes, bytes] = {}


class NoRules:
    """Implements `topics.ports.alarms.Rules` for a node without alarms. Any thread."""

    def of(self, project: str) -> Sequence[StoredRule]:
        return ()


class Watcher:
    """Evaluates the rules of a node's live sessions. Loop only."""

    def __init__(self, rules: Rules, models: Tags, made: Callable[[Sequence[Alarm]], None]) -> None:
        """`made` is called with alarms once readers see them; it must not raise."""
        self._rules = rules
        self._models = models
        self._made = made
        self._levels: dict[str, tuple[Sequence[StoredRule], bool]] = {}

    def needs_level(self, opened: Opened) -> bool:
        """Return whether a rule needs the level of a session's windows."""
        rules = self._rules.of(opened.project)
        if not rules or opened.kind != "stream":
            return False
        known = self._levels.get(opened.project)
        if known is None or known[0] is not rules:
            if len(self._levels) >= MOST_PROJECTS:
                self._levels.clear()
            known = self._levels[opened.project] = rules, needs_level(rules)
        return known[1]

    def take(self, store: Watchable, session: str, head: SessionHead, new: NewWindows, at: int) -> Evaluated | None:
        """Evaluate windows made at a log time (ms); return None without rules. Nothing is changed yet.

        Raises:
            RecordError: the row of its rules cannot be read.
        """
        opened = store.opened(session)
        rules = () if opened is None or opened.kind != "stream" else self._rules.of(opened.project)
        if opened is None or not rules:
            return None
        watching = store.watching(session)
        if watching is None or watching.watch.opened is not opened or watching.rules != rules:
            watching = self._begin(store, session, opened, bool(head.predicts), rules, new.model, watching)
        watch, before = watching.watch, watching.state
        evaluated = Evaluated(watching, before, watching.row, watching.changes)
        if watch.rules and (new.scores or new.notes):
            heard = Heard(new.first, new.scores, new.levels, new.notes)
            state, evaluated.alarms = evaluate(watch, before, heard, partial(store.time_of, session), at)
            if evaluated.alarms:
                assert state is not None
                evaluated.rows = store.alarms.made(session, state, evaluated.alarms)
                evaluated.row, evaluated.changes = state, b""
            elif state is not None:
                evaluated.changes = encoded_changes(state, watching.row)
            evaluated.state = state or before
        return evaluated

    def _begin(
        self,
        store: Watchable,
        session: str,
        opened: Opened,
        predicts: bool,
        rules: Sequence[StoredRule],
        model: str,
        known: Watching | None,
    ) -> Watching:
        """Compile the rules for a session, and read how far they came unless that is `known`."""
        if known is None:
            state = row = store.alarms.watched(session) or Watched()
            newest, changes = store.newest(session), b""
            if newest is not None and newest.windows >= row.to:
                changes = newest.watched
                state = row.changed(decoded_changes(changes))
            store.alarms.drop_unmade(session, row.next)
        else:
            state, row, changes = known.state, known.row, known.changes
        watch = Watch(session, opened, predicts, rules, self._models.tags(model), self._models.classes(model))
        watching = Watching(rules, watch, state, row, changes)
        store.watch(session, watching)
        return watching

    def note(self, store: Watchable, evaluated: Evaluated) -> None:
        """Note that what changed is in the table."""
        watching = evaluated.watching
        watching.state, watching.row, watching.changes = evaluated.state, evaluated.row, evaluated.changes
        if evaluated.alarms:
            store.alarms.note_made(evaluated.alarms)
            self._made(evaluated.alarms)
