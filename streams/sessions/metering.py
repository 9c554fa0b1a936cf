"""What the audio of a session is in the ledger: steps of windows, which follow from the count of windows alone.

The windows of a session cover its audio from the beginning to the end of the last one: that is what is billed, and what
a client can check by the last `end_time` that it read. Windows of `/predict` have audio of their own each.
"""

from collections.abc import Iterator

from topics.hearing import parts_of
from topics.ports.ledger import Charge, MeteredService
from topics.sessions.records import Metered, Opened
from topics.sessions.rules import METER_WINDOWS


def charges(session: str, opened: Opened, metered: Metered, first: int = 0) -> Iterator[Charge]:
    """Yield the lines of the ledger for the windows [first, metered.windows); `first` begins a step.

    A line's time is that of the opening, and later by the audio of the steps before.
    """
    while first < metered.windows:
        step = first // METER_WINDOWS
        stop = min(metered.windows, (step + 1) * METER_WINDOWS)
        before = opened.audio_ms(first, metered.predicts)
        yield Charge(
            session,
            MeteredService.SESSION,
            opened.project,
            opened.organization,
            opened.audio_ms(stop, metered.predicts) - before,
            parts_of(opened.model)[0],
            opened.at + before,
            step,
        )
        first = stop
