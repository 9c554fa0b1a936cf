"""`earshot listen`: stream a recording or a microphone and print sounds as they are heard."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import remote
from infra.cli.output import silence_libraries
from topics.errors import EarshotError

if TYPE_CHECKING:
    from earshot_client import Event, Run, Socket
    from infra.cli.pcm import PcmSource

LONGEST_NAME = 200
Print = Callable[[str], None]
Advance = Callable[[], None]


def listen(
    file: Annotated[str, typer.Argument(help="Audio file, or - for raw PCM from a pipe.")],
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    speed: Annotated[str, typer.Option(help="Real-time factor of a file, or max.")] = "1",
    whole: Annotated[bool, typer.Option("--whole", help="Print whole events, each when it has ended.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line for each window, or for each whole event.")
    ] = False,
    rate: Annotated[int, typer.Option(min=1, help="Sample rate of a pipe, Hz.")] = 16000,
    sample_format: Annotated[str, typer.Option("--format", help="Sample format of a pipe.")] = "s16le",
    channels: Annotated[int, typer.Option(min=1, help="Channels of a pipe.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Name of the stream in lists, as the camera's; by default that of the file.")
    ] = None,
    sensitivity: remote.DefaultSensitivity = 0,
    tag_sensitivity: remote.TagSensitivity = None,
) -> None:
    """Stream audio over a live socket and print events as they come; Ctrl-C ends the stream.

    A break loses nothing: the command reconnects and continues.
    """
    from earshot_client import SessionOptions

    if name is not None and not 0 < len(name) <= LONGEST_NAME:
        raise typer.BadParameter(f"must have 1 to {LONGEST_NAME} characters", param_hint="--name")
    source = _source(file, speed, rate, sample_format, channels)
    sensitivities = remote.sensitivity(sensitivity, tag_sensitivity)
    known = name or (None if file == "-" else Path(file).name)
    options = SessionOptions("stream", source.content_type, sensitivities, file_name=known)
    with (
        remote.connected(url, key_file) as client,
        client.socket(options) as socket,
        _screen(None if json else source.seconds) as (show, advance),
    ):
        lines = _as_json(_windows(socket), whole) if json else _as_text(_windows(socket), whole)
        reader = _Reader(lines, show)
        sent = _send(socket, source, reader, advance)
        reader.finish()
    if not sent:
        raise EarshotError(f"{'the standard input' if file == '-' else file}: there is no audio")


def _source(file: str, speed: str, rate: int, sample_format: str, channels: int) -> PcmSource:
    import msgspec

    from infra.cli import pcm

    factor = _factor(speed)
    try:
        if file == "-":
            if not pcm.FORMAT.fullmatch(sample_format):
                raise typer.BadParameter(pcm.NO_FORMAT.format(sample_format), param_hint="--format")
            return pcm.from_pipe(sys.stdin.buffer, rate, sample_format, channels)
        silence_libraries()
        source = pcm.from_file(Path(file))
    except OSError as error:
        raise EarshotError(f"{file}: {error.strerror}") from None
    return msgspec.structs.replace(source, blocks=pcm.paced(source.blocks, factor)) if factor else source


def _factor(speed: str) -> float | None:
    """Return the speed as a number, or None for max."""
    if speed == "max":
        return None
    with suppress(ValueError):
        if 0 < float(speed) < float("inf"):
            return float(speed)
    raise typer.BadParameter(f"{speed!r} is neither a number above 0 nor max", param_hint="--speed")


def _send(socket: Socket, source: PcmSource, reader: _Reader, advance: Advance) -> bool:
    """Send the blocks until they end, the reader ends, or Ctrl-C; return True if there were any."""
    from earshot_client import EarshotClientError

    sent = False
    # The reader reports what ended the socket.
    with suppress(EarshotClientError):
        with suppress(KeyboardInterrupt):
            for block in source.blocks:
                if reader.ended:
                    return sent
                sent = True
                socket.send(block)
                advance()
        socket.end()
    return sent


def _windows(socket: Socket) -> Iterator[Event]:
    from earshot_client import Event

    for event in socket:
        if isinstance(event, Event):
            yield Event(event.start, event.end, event.tags)


class _Reader:
    """A thread that prints the lines of a session while the main thread sends."""

    def __init__(self, lines: Iterator[str], show: Print) -> None:
        self._lines = lines
        self._show = show
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Wait for the last line; raise the error that ended the reading early, if any."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _read(self) -> None:
        try:
            for line in self._lines:
                self._show(line)
        except Exception as error:
            self._failure = error


def _as_text(events: Iterator[Event], whole: bool) -> Iterator[str]:
    """Yield a line for each window with a sound, or for each whole event."""
    if whole:
        for run in _runs(events):
            yield f"At {run.start:g}-{run.end:g}s, {run.name} ({run.probability:.2f})"
        return
    for event in events:
        if tags := ", ".join(f"{tag.name} ({tag.probability:.2f})" for tag in event.sounds):
            yield f"At {event.start:g}-{event.end:g}s, {tags}"


def _as_json(events: Iterator[Event], whole: bool) -> Iterator[str]:
    import msgspec

    for one in _runs(events) if whole else events:
        yield msgspec.json.encode(one).decode()


def _runs(events: Iterator[Event]) -> Iterator[Run]:
    """Yield whole events as they end; if the windows fail, also yield those that have begun."""
    from earshot_client import Runs

    runs = Runs()
    try:
        for event in events:
            yield from runs.add(event)
    except Exception:
        yield from runs.close()
        raise
    yield from runs.close()


@contextmanager
def _screen(seconds: float | None) -> Iterator[tuple[Print, Advance]]:
    """Yield functions that print a line and advance by a block, with a bar for a file on a terminal."""
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
