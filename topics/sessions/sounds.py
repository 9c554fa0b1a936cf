"""Start and end of sounds: on once enough of the last windows report a sound, off once none has for a while.

A pure function of the ordered windows, so that all readers, on any node, get the same starts and ends.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from topics.choices import SoundRule

DEFAULT: Final = SoundRule()

#: The events of a sound, by their names.
STARTED: Final = "sound.started"
ENDED: Final = "sound.ended"


class SoundRules(msgspec.Struct, frozen=True, array_like=True):
    """The sound rules from a window on: one for all sounds, and some by name."""

    first: int
    #: The id of the record that set them.
    command: str
    rule: SoundRule
    by_name: dict[str, SoundRule]

    def horizon(self, hop_ms: int) -> int:
        """Return after how many windows without any sound all state can be dropped."""
        return max(rule.horizon(hop_ms) for rule in (self.rule, *self.by_name.values()))


class Heard(msgspec.Struct, frozen=True):
    """An event of a sound; times in milliseconds."""

    name: str
    start_ms: int
    end_ms: int
    #: The highest probability of its windows.
    probability: float
    event: str


class _Sound(msgspec.Struct):
    """The state of a sound."""

    #: Numbers, starts and probabilities of the windows that reported it, as far back as the rule needs.
    recent: list[tuple[int, int, float]] = []
    #: Number of the window that ended it last; earlier windows are no part of the next sound.
    off: int = -1
    is_on: bool = False
    start_ms: int = 0
    end_ms: int = 0
    probability: float = 0.0

    def heard(self, name: str, event: str) -> Heard:
        return Heard(name, self.start_ms, self.end_ms, self.probability, event)


class SoundTracker:
    """Accepts windows in order, and returns the sounds that start and end with each."""

    def __init__(self, rules: Sequence[SoundRules]) -> None:
        """Start with all sounds off; `rules` begin with those of window 0."""
        #: In the order of their windows. Rules for later windows may be added.
        self.rules = rules
        self._at = 0
        self._sounds: dict[str, _Sound] = {}

    def horizon(self, hop_ms: int) -> int:
        return max(rules.horizon(hop_ms) for rules in self.rules)

    def _rule_of(self, name: str) -> SoundRule:
        rules = self.rules[self._at]
        return rules.by_name.get(name, rules.rule)

    def take(self, number: int, start_ms: int, end_ms: int, reported: Sequence[tuple[str, float]]) -> list[Heard]:
        """Return the sounds that end and start with a window: first the ends, then the starts, each by name."""
        while self._at + 1 < len(self.rules) and self.rules[self._at + 1].first <= number:
            self._at += 1
        ends: list[Heard] = []
        names = dict(reported)
        for name in sorted(self._sounds.keys() - names.keys()):
            sound, rule = self._sounds[name], self._rule_of(name)
            sound.recent = [one for one in sound.recent if one[0] > number - rule.of]
            if sound.is_on and end_ms - sound.end_ms >= rule.margin_ms:
                sound.is_on, sound.off = False, number
                ends.append(sound.heard(name, ENDED))
            if not sound.is_on and not sound.recent:
                del self._sounds[name]
        begun = [self._report(name, number, start_ms, end_ms, names[name]) for name in sorted(names)]
        return [*ends, *(one for one in begun if one is not None)]

    def on(self) -> list[Heard]:
        """Return the starts of the sounds that are on, by name."""
        return [sound.heard(name, STARTED) for name, sound in sorted(self._sounds.items()) if sound.is_on]

    def finish(self) -> list[Heard]:
        """Return the ends of sounds because no more windows follow, by name."""
        rest = [msgspec.structs.replace(sound, event=ENDED) for sound in self.on()]
        self._sounds.clear()
        return rest

    def _report(self, name: str, number: int, start_ms: int, end_ms: int, probability: float) -> Heard | None:
        sound, rule = self._sounds.setdefault(name, _Sound()), self._rule_of(name)
        sound.recent = [*(one for one in sound.recent if one[0] > number - rule.of), (number, start_ms, probability)]
        sound.end_ms = end_ms
        if sound.is_on:
            sound.probability = max(sound.probability, probability)
            return None
        if len(sound.recent) < rule.windows:
            return None
        own = [one for one in sound.recent if one[0] > sound.off]
        sound.is_on, sound.start_ms, sound.probability = True, own[0][1], max(one[2] for one in own)
        return sound.heard(name, STARTED)
