"""`earshot listen`: stream a recording or a microphone and print what is heard, as it is heard."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import remote
from topics.errors import EarshotError

if TYPE_CHECKING:
    from app.client import Client, Event, Run
    from infra.cli.pcm import Source

Print = Callable[[str], None]
Advance = Callable[[], None]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(listen)


def listen(
    file: Annotated[str, typer.Argument(help="Audio file, or - for raw PCM from a pipe.")],
    url: remote.Url = remote.LOCAL,
    key: remote.Key = "",
    speed: Annotated[str, typer.Option(help="Times real time for a file, or max.")] = "1",
    whole: Annotated[bool, typer.Option("--whole", help="Print whole events, each when it has ended.")] = False,
    rate: Annotated[int, typer.Option(min=1, help="Sample rate of a pipe, Hz.")] = 16000,
    sample_format: Annotated[str, typer.Option("--format", help="Sample format of a pipe.")] = "s16le",
    channels: Annotated[int, typer.Option(min=1, help="Channels of a pipe.")] = 1,
    sensitivity: remote.DefaultSensitivity = 0,
    tag_sensitivity: remote.TagSensitivity = None,
) -> None:
    """Stream audio in chunks of half a second and print events as they come; Ctrl-C ends the stream."""
    from app.client import SessionOptions

    source = _source(file, speed, rate, sample_format, channels)
    sensitivities = remote.sensitivity(sensitivity, tag_sensitivity)
    with remote.connected(url, key) as client:
        session = client.create_session(SessionOptions("stream", source.content_type, sensitivities))
        with _screen(source.seconds) as (show, advance):
            reader = _Reader(client, session.id, show, whole)
            try:
                _send(client, session.id, source, reader, advance)
            finally:
                client.seal_session(session.id)
            reader.finish()


def _source(file: str, speed: str, rate: int, sample_format: str, channels: int) -> Source:
    import msgspec

    from infra.cli import pcm

    factor = _factor(speed)
    try:
        if file == "-":
            return pcm.from_pipe(sys.stdin.buffer, rate, sample_format, channels)
        source = pcm.from_file(Path(file))
    except OSError as error:
        raise EarshotError(f"{file}: {error.strerror}") from None
    return msgspec.structs.replace(source, blocks=pcm.paced(source.blocks, factor)) if factor else source


def _factor(speed: str) -> float | None:
    """Return the speed as a number, None for max."""
    if speed == "max":
        return None
    with suppress(ValueError):
        if 0 < float(speed) < float("inf"):
            return float(speed)
    raise typer.BadParameter(f"{speed!r} is neither a number above 0 nor max", param_hint="--speed")


def _send(client: Client, session: str, source: Source, reader: _Reader, advance: Advance) -> None:
    """Upload the blocks until they end, the reader ends, or Ctrl-C."""
    from app.client import SessionClosed

    sequence = 0
    # The session closes by itself when its audio cannot be analysed; the reader learns why.
    with suppress(KeyboardInterrupt, SessionClosed):
        for block in source.blocks:
            if reader.ended:
                return
            sequence = client.put_chunk(session, sequence, block)
            advance()


class _Reader:
    """A thread that prints the events of a session while another one sends."""

    def __init__(self, client: Client, session: str, show: Print, whole: bool) -> None:
        self._events = client.session_events(session)
        self._print = (_print_runs if whole else _print_windows, show)
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """True when nothing more will be printed."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Wait for the last event; raises what ended the reading early."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _read(self) -> None:
        write, show = self._print
        try:
            write(self._events, show)
        except Exception as error:
            self._failure = error


def _print_windows(events: Iterator[Event], show: Print) -> None:
    """Print each window in which something is heard, at once."""
    for event in events:
        if tags := ", ".join(f"{tag.name} ({tag.probability:.2f})" for tag in event.sounds):
            show(f"At {event.start:g}-{event.end:g}s, {tags}")


def _print_runs(events: Iterator[Event], show: Print) -> None:
    from app.client import Runs

    runs = Runs()
    try:
        for event in events:
            _print_all(runs.add(event), show)
    finally:
        _print_all(runs.close(), show)


def _print_all(runs: list[Run], show: Print) -> None:
    for run in runs:
        show(f"At {run.start:g}-{run.end:g}s, {run.name} ({run.probability:.2f})")


@contextmanager
def _screen(seconds: float | None) -> Iterator[tuple[Print, Advance]]:
    """Yield how to print a line and how to advance by a block: with a bar for a file on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from infra.cli.pcm import BLOCK_SECONDS

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if seconds is None or not console.is_terminal:
        yield lambda line: print(line, flush=True), lambda: None
        return
    columns = (TextColumn("listening"), BarColumn(), TextColumn("{task.completed:.1f} s"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("listening", total=seconds)
        yield console.print, lambda: progress.advance(task, BLOCK_SECONDS)
