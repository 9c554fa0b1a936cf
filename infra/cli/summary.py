"""What was said and heard, as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.client import Event, Runs, Tag

if TYPE_CHECKING:
    from app.client import Insights, JobResult, Run, SpeakerTurn, Turn, Window


def show(file: str, result: JobResult) -> None:
    """Print the result of a job of one file."""
    parts: list[RenderableType] = [_text(file, "bold")]
    if result.caption and result.caption.result:
        parts.append(_text(result.caption.result.caption, "italic"))
    if result.audio_insights and result.audio_insights.result:
        parts.append(_insights(result.audio_insights.result))
    if result.speech_analysis and (result.speech_analysis.results or "speech_analysis" not in result.errors):
        parts.append(_transcript(result.speech_analysis.results))
    if result.sound_event_detection and (
        result.sound_event_detection.results or "sound_event_detection" not in result.errors
    ):
        parts.append(_sounds(result.sound_event_detection.results))
    parts += [_text(f"note: {warning}", "yellow") for warning in result.metadata.get("warnings", ())]
    Console(highlight=False).print(Group(*parts, Text()))


def show_turns(file: str, turns: Sequence[SpeakerTurn]) -> None:
    """Print who speaks when in one file, how surely, and what."""
    table = _table("speakers", "from", "to", "speaker", "score", "text")
    for turn in turns:
        # -1 says that there was nobody to be compared with.
        score = "" if turn.unlabeled or turn.score == -1 else f"{turn.score:.2f}"
        times = clock(turn.start_ms / 1000), clock(turn.end_ms / 1000)
        table.add_row(*times, _text(turn.name), score, _text(turn.transcript))
    Console(highlight=False).print(Group(_text(file, "bold"), table if turns else Text("no speech"), Text()))


def _insights(insights: Insights) -> RenderableType:
    table = _table("insights", "", "")
    for name, value in (
        ("environment", insights.primary_sound_environment),
        ("situation", insights.situation_summary),
        ("notable", ", ".join(insights.notable_events)),
        ("language", insights.detected_language),
        ("what was said", insights.speech_content_summary),
        ("keywords", ", ".join(insights.keywords or ())),
    ):
        if value:
            table.add_row(name, _text(value))
    return table


def _transcript(turns: Sequence[Turn]) -> RenderableType:
    if not turns:
        return Text("no speech")
    translated = any(turn.translation for turn in turns)
    table = _table("speech", "from", "to", "speaker", "text", *(["translation"] if translated else []))
    for turn in turns:
        who = turn.speaker_name or turn.speaker or ""
        cells = [who, turn.transcript, *([turn.translation or ""] if translated else [])]
        table.add_row(clock(turn.start), clock(turn.end), *map(_text, cells))
    return table


def _sounds(windows: Sequence[Window]) -> RenderableType:
    runs = Runs()
    ended: list[Run] = []
    for window in windows:
        tags = tuple(Tag(one.name, one.confidence) for one in window.classes)
        ended += runs.add(Event(window.start, window.end, tags))
    ended += runs.close()
    if not ended:
        return Text("no sound recognised")
    table = _table("sounds", "from", "to", "confidence", "sound")
    for run in sorted(ended, key=lambda run: (run.start, -run.probability)):
        table.add_row(clock(run.start), clock(run.end), f"{run.probability:.2f}", _text(run.name))
    return table


def _text(words: str, style: str = "") -> Text:
    """Return words as they are: no markup, and nothing that a terminal would obey."""
    return Text("".join(one for one in " ".join(words.split()) if one.isprintable()), style)


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, show_header=any(columns))
    for column in table.columns:
        if column.header in ("from", "to", "confidence", "score"):
            column.justify = "right"
            column.no_wrap = True
    return table


def clock(seconds: float) -> str:
    """Return a time as M:SS.s, or H:MM:SS.s from an hour on."""
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:{minutes:02d}" if hours else f"{minutes}") + f":{rest // 10:02d}.{rest % 10}"
