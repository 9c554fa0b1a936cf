"""The ledger lines of a session: steps of windows, which depend only on the count of windows.

A session's windows cover its audio from the beginning to the end of the last window. That is billed, and a client can
check it by the last `end_time` it read; of a window that lies in a gap of a file, its hop is not billed. Each window of
`/predict` has separate audio.
"""

from collections.abc import Iterator, Sequence

from topics.hearing import parts_of
from topics.ports.ledger import Charge, MeteredService
from topics.sessions.records import Metered, Opened
from topics.sessions.rules import METER_WINDOWS


def charges(
    session: str, opened: Opened, metered: Metered, first: int = 0, silent: Sequence[tuple[int, int]] = ()
) -> Iterator[Charge]:
    """Yield the ledger lines for the windows [first, metered.windows); `first` begins a step.

    Windows (first, end) that are `silent` are free. A line's time is the time of opening plus the audio of earlier
    steps.
    """
    while first < metered.windows:
        step = first // METER_WINDOWS
        stop = min(metered.windows, (step + 1) * METER_WINDOWS)
        before = opened.audio_ms(first, metered.predicts)
        free = sum(max(0, min(stop, end) - max(first, begin)) for begin, end in silent)
        yield Charge(
            session,
            MeteredService.SESSION,
            opened.project,
            opened.organization,
            opened.audio_ms(stop, metered.predicts) - before - free * opened.hop_ms,
            parts_of(opened.model)[0],
            opened.at + before,
            step,
        )
        first = stop
