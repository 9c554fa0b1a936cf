"""`earshot engines`: the bundled engine server by itself."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("engines")(engines)


def engines(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8100,
    log_level: Annotated[Level, typer.Option(envvar="EARSHOT_LOG_LEVEL", help="Least severe event to log.")] = "info",
    log_format: Annotated[Format, typer.Option(envvar="EARSHOT_LOG_FORMAT", help="Form of the log.")] = "json",
) -> None:
    """Serve speech (a demonstration, English), voices as vectors, captions and insights over public protocols.

    It needs no network and no keys. The service starts one for itself. To share one among services, start it here and
    set EARSHOT_SPEECH_URL, EARSHOT_SPEAKER_URL and EARSHOT_CAPTION_URL.
    """
    from infra import logs
    from infra.engines import serving

    logs.configure(log_level, log_format)
    listener = serving.listen(host, port)
    typer.echo(f"Engines answer at http://{host}:{port}")
    serving.serve(listener)
