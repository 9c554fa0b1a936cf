"""Meetings with their speakers' turns: real conversations, far from the microphone, sometimes simultaneous."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from infra.lab.evaluation.conversations import Conversation
from infra.lab.evaluation.diarization import COLLAR_S, DiarizationErrors, diarization_errors
from infra.lab.evaluation.utterances import SAMPLE_RATE, read_samples
from streams.services.timed_text import PAUSE_MS
from streams.voice import loudness as levels
from streams.voice.diarization import DiarizationTurn, lengthen_turns

#: NIST's format of turns, in the directory of the recordings.
TABLE: Final = "reference.rttm"


def read_meetings(folder: Path) -> list[Conversation]:
    """Read the recordings that `reference.rttm` in `folder` names, at the level of jobs; none if the file is missing.

    Raises:
        AudioError: A recording is missing, does not decode, or is not mono at 16 kHz.
    """
    if not (folder / TABLE).is_file():
        return []
    by_name: dict[str, list[DiarizationTurn]] = {}
    speakers: dict[str, int] = {}
    for line in (folder / TABLE).read_text(encoding="utf-8").splitlines():
        kind, name, _, start, length, _, _, speaker, *_ = line.split()
        if kind == "SPEAKER":
            number = speakers.setdefault(speaker, len(speakers))
            turn = DiarizationTurn(float(start), float(start) + float(length), number)
            by_name.setdefault(name, []).append(turn)
    return [
        Conversation(levels.levelled(read_samples(folder / f"{name}.ogg")), tuple(turns))
        for name, turns in by_name.items()
    ]


def meeting_errors(meeting: Conversation, turns: Iterable[DiarizationTurn]) -> DiarizationErrors:
    """Return the errors of turns as served to users, with the collar used for meetings."""
    length_s = len(meeting.samples) / SAMPLE_RATE
    return diarization_errors(meeting.turns, lengthen_turns(list(turns), length_s, PAUSE_MS / 1000), COLLAR_S)
