"""Draws the spectrogram of a section, and below it the probability of each tag over time."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from infra.lab.explore.section import AnalysedSection, Bytes
from infra.lab.explore.table import SENSITIVITIES
from infra.teaching.operating_points import Bools, Doubles
from topics.geometry import SESSIONS
from topics.scores import STEP, ZERO, threshold

FORMATS: Final = (".png", ".svg")
#: The most cells in a row; more would be indistinguishable.
MOST_CELLS: Final = 1600
#: Blue for probability, vermilion for reported: distinguishable with any colour vision.
HEAT: Final = LinearSegmentedColormap.from_list("heat", ["#f3f5f7", "#a6c8e4", "#2f7fc1", "#0b3c73"])
REPORTED: Final = "#d55e00"
INK: Final = "#22303c"
FAINT: Final = "#7a8794"
#: Possible seconds between marks of the time axis.
STEPS: Final = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)
#: Inches.
WIDTH, SPECTROGRAM, ROW, GAP, TOP, BOTTOM = 11.0, 2.3, 0.32, 0.3, 0.75, 0.45
LEFT, RIGHT, BAR_LEFT, BAR_WIDTH = 2.25, 9.25, 10.0, 0.16


def save(hearing: AnalysedSection, columns: Sequence[int], sensitivity: int, title: str, path: Path) -> None:
    """Draw the tags of some columns and write a PNG or SVG, by the suffix of `path`.

    Equal arguments give equal bytes with the same matplotlib.

    Raises:
        OSError: The file cannot be written.
        ValueError: The suffix is neither.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: a picture ends in {' or '.join(FORMATS)}")
    style = matplotlib.rc_context(
        {"svg.hashsalt": "earshot", "font.family": "DejaVu Sans", "font.size": 10, "text.parse_math": False}
    )
    with style, warnings.catch_warnings():
        # The font may lack letters of a file name; they are drawn as boxes.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure = _figure(hearing, columns, sensitivity, title)
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})


def _figure(hearing: AnalysedSection, columns: Sequence[int], sensitivity: int, title: str) -> Figure:
    rows = ROW * max(3, len(columns))
    height = TOP + SPECTROGRAM + GAP + rows + BOTTOM
    figure = Figure((WIDTH, height), facecolor="white")

    def place(left: float, bottom: float, width: float, tall: float) -> Axes:
        return figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, tall / height))

    figure.text(LEFT / WIDTH, 1 - 0.3 / height, title, size=14, weight="bold", color=INK, va="center")
    length = clock(round(hearing.seconds, 1), hearing.seconds)
    about = f"{length}  ·  {hearing.manifest.model_id}  ·  windows of 1 s every 0.5 s"
    figure.text(LEFT / WIDTH, 1 - 0.56 / height, about, size=9, color=FAINT, va="center")
    spectrogram = place(LEFT, BOTTOM + rows + GAP, RIGHT - LEFT, SPECTROGRAM)
    _draw_spectrogram(spectrogram, hearing)
    tags = place(LEFT, BOTTOM, RIGHT - LEFT, rows)
    _draw_tags(tags, hearing, columns, sensitivity)
    for axes in (spectrogram, tags):
        axes.set_xlim(hearing.start, hearing.start + hearing.seconds)
        axes.tick_params(color=FAINT, labelcolor=INK, length=3)
        for spine in axes.spines.values():
            spine.set_visible(False)
    spectrogram.tick_params(labelbottom=False, bottom=False)
    step = next((step for step in STEPS if 10 * step >= hearing.seconds), STEPS[-1])
    tags.xaxis.set_major_locator(MultipleLocator(step))
    tags.xaxis.set_major_formatter(FuncFormatter(lambda at, _: clock(at, hearing.start + hearing.seconds)))
    tall = max(rows, 2.2)
    _draw_bar(place(BAR_LEFT, BOTTOM, BAR_WIDTH, min(tall, rows + SPECTROGRAM / 2)), sensitivity)
    return figure


def _draw_spectrogram(axes: Axes, hearing: AnalysedSection) -> None:
    # The axis is linear in mel bands; only the ticks are in Hz.
    low, high = np.percentile(hearing.spectrogram, (5, 99.7))
    axes.set_facecolor("black")
    axes.imshow(
        hearing.spectrogram.T,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="magma",
        vmin=float(low),
        vmax=max(float(high), float(low) + 1.0),
        extent=(hearing.start, hearing.start + len(hearing.spectrogram) * hearing.column_seconds, 0.0, 1.0),
    )
    bottom, top = (float(_mel(hertz)) for hertz in (hearing.low_hz, hearing.high_hz))
    shown = [hertz for hertz in (250, 500, 1000, 2000, 4000, 8000, 16000) if hearing.low_hz < hertz <= hearing.high_hz]
    axes.set_yticks([(_mel(hertz) - bottom) / (top - bottom) for hertz in shown])
    axes.set_yticklabels([f"{hertz / 1000:g} kHz" for hertz in shown])


def _mel(hertz: float) -> float:
    return float(np.log1p(hertz / 700.0))


def _draw_tags(axes: Axes, hearing: AnalysedSection, columns: Sequence[int], sensitivity: int) -> None:
    cells, cell_seconds = heat(hearing.stored[:, columns])
    probabilities = 1.0 / (1.0 + np.exp(-STEP * (cells - float(ZERO) + 0.5)))
    axes.imshow(
        probabilities.T,
        aspect="auto",
        interpolation="nearest",
        cmap=HEAT,
        vmin=0.0,
        vmax=1.0,
        extent=(hearing.start, hearing.start + len(cells) * cell_seconds, len(columns) - 0.5, -0.5),
    )
    axes.set_yticks(range(len(columns)))
    labels = axes.set_yticklabels([hearing.manifest.tags[column].name.replace("_", " ") for column in columns])
    for row, label in enumerate(labels):
        on = cells[:, row] >= threshold(sensitivity)
        spans = [(hearing.start + begin * cell_seconds, (end - begin) * cell_seconds) for begin, end in runs(on)]
        axes.broken_barh(spans, (row + 0.3, 0.2), color=REPORTED, linewidth=0)
        label.set_fontweight("bold" if on.any() else "normal")
        label.set_color(INK if on.any() else FAINT)
        axes.annotate(
            f"{probabilities[:, row].max():.2f}",
            (1.0, row),
            (8, 0),
            ("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            weight="bold" if on.any() else "normal",
            color=REPORTED if on.any() else FAINT,
        )
        axes.axhline(row - 0.5, color="white", linewidth=3)
    axes.annotate("peak", (1.0, 1.0), (8, 4), "axes fraction", textcoords="offset points", size=8, color=FAINT)
    axes.tick_params(left=False)
    axes.set_ylim(len(columns) - 0.5, -0.5)


def heat(stored: Bytes) -> tuple[Doubles, float]:
    """Return (uint8[cells, tags] as floats, seconds of a cell): the highest of the windows that cover each cell.

    A cell is half a second, which two windows cover, or longer in a long recording. So a cell shows a tag as reported
    exactly when a window over it reports the tag.
    """
    nothing = np.zeros((1, stored.shape[1]), np.uint8)
    cells = np.maximum(np.concatenate((stored, nothing)), np.concatenate((nothing, stored)))
    span = -(-len(cells) // MOST_CELLS)
    starts = np.arange(0, len(cells), span)
    return np.maximum.reduceat(cells, starts, axis=0).astype(np.float64), span * SESSIONS.hop_ms / 1000


def runs(on: Bools) -> list[tuple[int, int]]:
    """Return [first, end) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(np.int8)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def _draw_bar(axes: Axes, sensitivity: int) -> None:
    axes.imshow(np.linspace(1, 0, 256)[:, None], aspect="auto", cmap=HEAT, extent=(0.0, 1.0, 0.0, 1.0))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 1.03, "1", transform=axes.transAxes, ha="center", va="bottom", color=INK)
    axes.text(0.5, -0.03, "0", transform=axes.transAxes, ha="center", va="top", color=INK)
    for step in SENSITIVITIES:
        needed = 1.0 / (1.0 + np.exp(-STEP * (threshold(step) - ZERO)))
        chosen = step == sensitivity
        axes.plot((0, 1), (needed, needed), color=REPORTED if chosen else INK, linewidth=2.5 if chosen else 0.8)
        text = f"{step:+d}" if step else "0"
        axes.text(
            1.5, needed, text, va="center", color=REPORTED if chosen else INK, weight="bold" if chosen else "normal"
        )
    axes.text(3.4, 0.5, "reported from here at sensitivity", rotation=90, va="center", ha="left", size=8, color=FAINT)
    for spine in axes.spines.values():
        spine.set_visible(False)


def clock(seconds: float, longest: float) -> str:
    """Format a time in seconds, or with minutes and hours if the axis is long."""
    if longest <= 120:
        return f"{seconds:g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if longest >= 3600 else f"{minutes}:{rest:02}"
