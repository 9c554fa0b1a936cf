"""`earshot engines`: run the bundled engine server alone."""

import os
from ipaddress import ip_address
from typing import Annotated, Literal

import typer

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]


def engines(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8100,
    speech_model: Annotated[
        Literal["whisper-base", "whisper-tiny.en"],
        typer.Option(envvar="EARSHOT_SPEECH_MODEL", help="Speech model for requests without one."),
    ] = "whisper-base",
    speech_threads: Annotated[
        int | None, typer.Option(min=1, max=64, envvar="EARSHOT_SPEECH_THREADS", help="Threads of Whisper.")
    ] = None,
    speech_batch: Annotated[
        int, typer.Option(min=1, max=32, envvar="EARSHOT_SPEECH_BATCH", help="Pieces of speech decoded in a batch.")
    ] = 4,
    speech_idle_seconds: Annotated[
        float,
        typer.Option(min=1, envvar="EARSHOT_SPEECH_IDLE_SECONDS", help="How long an unused speech model is kept."),
    ] = 300.0,
    log_level: Annotated[Level, typer.Option(envvar="EARSHOT_LOG_LEVEL", help="Least severe event to log.")] = "info",
    log_format: Annotated[Format, typer.Option(envvar="EARSHOT_LOG_FORMAT", help="Form of the log.")] = "json",
) -> None:
    """Serve speech, its translation into English, voices as vectors, captions and insights over public protocols.

    It needs no network. The service starts one for itself. To share one among services, start it here and set
    EARSHOT_SPEECH_URL, EARSHOT_SPEAKER_URL and EARSHOT_CAPTION_URL. With EARSHOT_ENGINES_KEY (or ..._FILE)
    it answers only requests with this key; clients set it as EARSHOT_SPEECH_KEY and so on. It needs a key to listen
    beyond this machine.
    """
    from infra import logs, scratch
    from infra.engines import serving
    from infra.engines.speech.speech_models import SpeechSettings
    from infra.errors import WrongSetting
    from infra.secret_files import secret
    from infra.urls import http_url
    from topics import apikeys

    logs.configure(log_level, log_format)
    scratch.prepare()
    key = secret("engines_key", os.environ)
    if key is not None and (why := apikeys.fault(key) or ("must have no spaces" if " " in key else None)):
        raise WrongSetting("engines_key", why)
    listener = serving.listen(host, port)
    if key is None and not ip_address(listener.getsockname()[0]).is_loopback:
        listener.close()
        raise WrongSetting("engines_key", f"must be set to listen at {host}, which is not this machine alone")
    typer.echo(f"Engines answer at {http_url(host, port)}")
    speech = SpeechSettings(speech_model, speech_threads, speech_batch, speech_idle_seconds)
    serving.serve(listener, speech, key)
