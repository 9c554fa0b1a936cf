"""Evaluates the rules of alarms over new windows of live sessions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from streams.alarms.alarm_rows import AlarmRows
from topics.alarms.alarms import Alarm
from topics.alarms.evaluation import Heard, Watch, Watched, evaluate, needs_level
from topics.alarms.rules import StoredRule
from topics.alarms.tags import Classes
from topics.ports.alarms import Rules
from topics.sessions.capture import CaptureTime
from topics.sessions.records import NewWindows, Opened
from topics.sessions.rules import SessionHead

#: Projects whose need of levels is remembered.
MOST_PROJECTS: Final = 4096


class Watching(msgspec.Struct, eq=False):
    """What is in memory of the rules of a session; its row says all that cannot be made again."""

    rules: Sequence[StoredRule]
    watch: Watch
    #: As the changelog and the table have it.
    state: Watched


class Watchable(Protocol):
    """The sessions of a partition, as `streams.sessions.store` has them."""

    @property
    def alarms(self) -> AlarmRows: ...

    def opened(self, session: str) -> Opened | None: ...

    def time_of(self, session: str, position_ms: int) -> CaptureTime: ...

    def watching(self, session: str) -> Watching | None: ...

    def watch(self, session: str, watching: Watching) -> None: ...


class Tags(Protocol):
    """The tags of models, as `streams.models.loaded_models` has them."""

    def tags(self, model: str) -> Sequence[str]: ...

    def classes(self, model: str) -> Classes: ...


class Evaluated(msgspec.Struct, eq=False):
    """What new windows changed in the rules of a session."""

    watching: Watching
    state: Watched
    alarms: Sequence[Alarm]
    #: To be logged before the windows.
    rows: dict[bytes, bytes]


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
        """Evaluate windows made at a log time (ms); return None if no rule's state changes. Nothing is changed yet.

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
        if not watch.rules or not (new.scores or new.notes):
            return None
        heard = Heard(new.first, new.scores, new.levels, new.notes)
        state, alarms = evaluate(watch, before, heard, partial(store.time_of, session), at)
        if state is None:
            return None
        return Evaluated(watching, state, alarms, store.alarms.made(session, state, alarms))

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
            state = store.alarms.watched(session) or Watched()
            store.alarms.drop_unmade(session, state.next)
        else:
            state = known.state
        watch = Watch(session, opened, predicts, rules, self._models.tags(model), self._models.classes(model))
        watching = Watching(rules, watch, state)
        store.watch(session, watching)
        return watching

    def note(self, store: Watchable, evaluated: Evaluated) -> None:
        """Note that what changed is in the table."""
        evaluated.watching.state = evaluated.state
        store.alarms.note_made(evaluated.alarms)
        if evaluated.alarms:
            self._made(evaluated.alarms)
