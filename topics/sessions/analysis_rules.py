"""The rules of a session's analysis: the effect of new windows on its head, and which sound rules they get; names."""

import msgspec

from topics.sessions.records import NewWindows, Opened, Renamed, Tuned
from topics.sessions.rules import SessionHead, without_dropped
from topics.sessions.sounds import SoundRules


def continues(head: SessionHead, new: NewWindows) -> bool:
    """Return whether new windows and notes follow those that a session has, so that none is missing or made twice."""
    if new.notes and new.notes[0].number != head.heard:
        return False
    return new.first == head.windows and new.cursor.chunks >= head.cursor.chunks


def grown(head: SessionHead, new: NewWindows, at: int) -> SessionHead:
    """Return the head of a session with windows that continue it, made at the log time `at` (ms)."""
    end = new.first + new.count
    # A window is named once, also if the next windows are in the same gap.
    silent = [(max(first, new.first), min(stop, end)) for first, stop in new.silent]
    return without_dropped(
        msgspec.structs.replace(
            head,
            windows=end,
            cursor=new.cursor,
            finished=new.final,
            analysed_at=at,
            silent=(*head.silent, *((first, stop) for first, stop in silent if first < stop)),
            heard=head.heard + len(new.notes),
        )
    )


def tuned(opened: Opened, change: Tuned, first: int) -> Opened:
    """Return an opening with new rules from a window on, or unchanged if it has them."""
    known = opened.rules
    if any(one.command == change.command for one in known):
        return opened
    rule = known[-1].rule if change.sound_rule is None else change.sound_rule
    by_name = known[-1].by_name if change.sound_rules is None else change.sound_rules
    return msgspec.structs.replace(opened, tuned=(*opened.tuned, SoundRules(first, change.command, rule, by_name)))


def renamed(opened: Opened, change: Renamed) -> Opened:
    """Return an opening with a new name and new metadata."""
    return msgspec.structs.replace(
        opened,
        file_name=opened.file_name if change.file_name is None else change.file_name,
        metadata=opened.metadata if change.metadata is None else change.metadata,
    )
