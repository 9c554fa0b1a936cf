"""Speech and sounds as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import RenderableType
from rich.text import Text

from earshot_client import Run
from infra.cli.tables import plain, print_parts, table

if TYPE_CHECKING:
    from earshot_client import Insights, JobResult, Overlap, SpeakerTurn, Turn, Window

NUMBERS: Final = ("from", "to", "confidence", "score")


def show(file: str, result: JobResult) -> None:
    """Print the result of one file's job."""
    parts: list[RenderableType] = [plain(file, "bold")]
    if result.caption and result.caption.result:
        parts.append(plain(result.caption.result.caption, "italic"))
    if result.audio_insights and result.audio_insights.result:
        parts.append(_insights(result.audio_insights.result))
    if result.speech_analysis and (result.speech_analysis.results or "speech_analysis" not in result.errors):
        parts.append(_transcript(result.speech_analysis.results))
    if result.sound_event_detection and (
        result.sound_event_detection.results or "sound_event_detection" not in result.errors
    ):
        parts.append(_sounds(result.sound_event_detection.results))
    parts += [plain(f"note: {warning}", "yellow") for warning in result.metadata.get("warnings", ())]
    print_parts(*parts, Text())


def show_turns(file: str, turns: Sequence[SpeakerTurn]) -> None:
    """Print a file's turns: who speaks when, with score and text."""
    rows = table("from", "to", "speaker", "score", "text", right=NUMBERS, title="speakers")
    for turn in turns:
        # -1 means that there was nobody to compare with.
        score = "" if turn.unlabeled or turn.score == -1 else f"{turn.score:.2f}"
        times = clock(turn.start_ms / 1000), clock(turn.end_ms / 1000)
        rows.add_row(*times, plain(turn.name), score, plain(turn.transcript))
    print_parts(plain(file, "bold"), rows if turns else Text("no speech"), Text())


def _insights(insights: Insights) -> RenderableType:
    rows = table("", "", title="insights")
    for name, value in (
        ("environment", insights.primary_sound_environment),
        ("situation", insights.situation_summary),
        ("notable", ", ".join(insights.notable_events)),
        ("language", insights.detected_language),
        ("what was said", insights.speech_content_summary),
        ("keywords", ", ".join(insights.keywords or ())),
    ):
        if value:
            rows.add_row(name, plain(value))
    return rows


def _transcript(turns: Sequence[Turn]) -> RenderableType:
    if not turns:
        return Text("no words")
    translated, overlapped = (any(getattr(turn, name) for turn in turns) for name in ("translation", "overlaps"))
    names = ("from", "to", "speaker", *["at once"] * overlapped, "text", *["translation"] * translated)
    rows = table(*names, right=NUMBERS, title="speech")
    for turn in turns:
        others = ", ".join(dict.fromkeys(map(_voice, turn.overlaps)))
        cells = [_voice(turn), *[others] * overlapped, turn.transcript, *[turn.translation or ""] * translated]
        rows.add_row(clock(turn.start), clock(turn.end), *map(plain, cells))
    return rows


def _voice(part: Turn | Overlap) -> str:
    return part.speaker_name or part.speaker or ""


def _sounds(windows: Sequence[Window]) -> RenderableType:
    heard = sorted(runs(windows), key=lambda run: (run.start, -run.probability))
    if not heard:
        return Text("no sound recognised")
    rows = table("from", "to", "confidence", "sound", right=NUMBERS, title="sounds")
    for run in heard:
        rows.add_row(whole_clock(run.start), whole_clock(run.end), f"{run.probability:.2f}", plain(run.name))
    return rows


def runs(windows: Sequence[Window]) -> Iterator[Run]:
    """Yield each sound from its beginning to its end. Windows that touch count as one sound, as in captions."""
    last: dict[str, Run] = {}
    for window in windows:
        for one in window.classes:
            run = last.get(one.name)
            if run is not None and window.start > run.end:
                yield run
                run = None
            start, highest = (window.start, 0.0) if run is None else (run.start, run.probability)
            last[one.name] = Run(one.name, start, window.end, max(highest, one.confidence))
    yield from last.values()


def whole_clock(seconds: float) -> str:
    """Return a time as M:SS or H:MM:SS: windows of two seconds do not justify tenths."""
    return clock(round(seconds))[:-2]


def clock(seconds: float) -> str:
    """Return a time as M:SS.s, or as H:MM:SS.s from one hour on."""
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:{minutes:02d}" if hours else f"{minutes}") + f":{rest // 10:02d}.{rest % 10}"
