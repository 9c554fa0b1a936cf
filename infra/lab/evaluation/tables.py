"""Prints evaluations as tables."""

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.lab.evaluation import card
from infra.lab.evaluation.metrics import DetectionFigures
from infra.lab.evaluation.report import EvaluationReport, MaterialFigures

#: Skipped recordings printed by name; the rest are counted.
NAMED: Final = 20

LEGEND: Final = """\
found: recordings, and windows of a second, in which a present sound is reported; false: events a minute,
and windows, with a tag of an absent sound; median of three: after a median over three windows
"""


def print_report(report: EvaluationReport, console: Console) -> None:
    """Print the lines, tags, figures and skipped recordings of a report."""
    console.print(Text(f"\n{report.model}", style="bold"))
    if report.seen:
        console.print(
            "This model was trained on these recordings: the table shows what it remembers. For other recordings, "
            "expect the figures below, measured on held-out recordings in training."
        )
    if report.lines:
        console.print(_lines(report.lines))
        console.print(LEGEND)
    if report.tags:
        console.print(_tags(report))
    for heading, figures in (("measured here", report.measured), ("figure", report.figures)):
        if figures:
            console.print(_figures(heading, figures))
    if report.skipped:
        console.print(f"{len(report.skipped)} recordings were skipped:")
        for skipped in report.skipped[:NAMED]:
            console.print(Text(f"  {skipped.name}: {skipped.cause}"))
        if len(report.skipped) > NAMED:
            console.print(f"  and {len(report.skipped) - NAMED} more")


def _figures(heading: str, figures: dict[str, float]) -> Table:
    table = Table(heading, box=None, pad_edge=False)
    table.add_column("", justify="right")
    for name, value in figures.items():
        table.add_row(card.figure_title(name), card.format_figure(name, value))
    return table


def _lines(lines: tuple[MaterialFigures, ...]) -> Table:
    table = Table("recordings", box=None, pad_edge=False)
    for name in ("n", "minutes", "found", "windows", "false/min", "false windows"):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(line.material, str(line.recordings), f"{line.minutes:.1f}", *_cells(line.plain))
        table.add_row("  median of three", "", "", *_cells(line.median))
    return table


def _cells(figures: DetectionFigures) -> list[str]:
    shares = (figures.clip_recall, figures.window_recall, figures.false_windows)
    recall, windows, false = ("-" if share != share else f"{share:.1%}" for share in shares)
    return [recall, windows, f"{figures.false_events_per_minute:.2f}", false]


def _tags(report: EvaluationReport) -> Table:
    table = Table("tag", box=None, pad_edge=False)
    for name in ("point", "set on clips", "found", "of", "false events"):
        table.add_column(name, justify="right")
    for tag in sorted(report.tags, key=lambda tag: (-tag.clips, tag.tag)):
        rests = str(tag.rests_on) if tag.rests_on else "0 = only negatives"
        hits, clips = (str(tag.found), str(tag.clips)) if tag.clips else ("", "")
        table.add_row(tag.tag, f"{tag.point:.3f}", rests, hits, clips, str(tag.false_events))
    return table
