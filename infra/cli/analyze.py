"""`earshot analyze`: send whole recordings as jobs and print their results."""

from __future__ import annotations

import difflib
import errno
import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from infra.cli import remote
from topics import languages
from topics.errors import BadRequest, EarshotError
from topics.jobs.options import TOLD, Options
from topics.keys import shown

if TYPE_CHECKING:
    from rich.progress import Progress

    from earshot_client import Client, JobEvent, JobOptions


#: A code of ISO 639, perhaps with a region.
_CODE: Final = re.compile("[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*")
#: The bundled engine's answer to a language that it does not know.
LANGUAGE_REFUSED: Final = "ASR Engine API error: 400"


def analyze(
    files: Annotated[list[Path], typer.Argument(help="Recordings of any length, in any supported format.")],
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    *,
    insights: Annotated[bool, typer.Option("--insights", help="Also insights and a caption.")] = False,
    translate: Annotated[
        str | None, typer.Option(metavar="LANG", help="Translate speech into a language, as ko.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result object of each file, one a line.")] = False,
    srt: Annotated[Path | None, typer.Option(help="Write captions here, as SubRip.")] = None,
    vtt: Annotated[Path | None, typer.Option(help="Write captions here, as WebVTT.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key and file return the first job again.")
    ] = None,
    **given: Any,
) -> None:
    """Send recordings, one after another, and print what was said and heard in each.

    The exit status is 1 if a file or a service of its job failed. The command names each failure and prints all other
    results.
    """
    if len(files) > 1 and (srt or vtt or idempotency_key):
        raise BadRequest("--srt, --vtt and --idempotency-key are for one file")
    if given["audio_insights_prompt"] and not insights:
        raise BadRequest("--prompt needs --insights")
    for option, language in (("--speech-lang", given["speech_lang"]), ("--translate", translate)):
        check_language(option, language)
    if idempotency_key and not (idempotency_key.isascii() and idempotency_key.isprintable()):
        raise BadRequest("--idempotency-key is sent in an HTTP header, so it must be printable ASCII")
    check_captions(srt, vtt)
    from earshot_client import JobOptions

    options = JobOptions(
        audio_insights=insights,
        caption=insights,
        translation=translate is not None,
        translation_target_lang=translate or "en",
        **given,
    )
    whole = 0
    with remote.connected(url, key_file) as client:
        for file in files:
            with remote.printed(file):
                job = _send(client, file, options, idempotency_key)
                with _continuing(job):
                    whole += print_job(client, job, str(file), json, srt, vtt)
    if whole < len(files):
        raise typer.Exit(1)


def _flags() -> Iterator[inspect.Parameter]:
    """Yield the parameters for the options of a job; sounds and speech are on by default."""
    names = {name: told.extra["flag"].split("/")[0].split()[0] for name, told in TOLD.items() if told.extra["flag"]}
    kinds = get_type_hints(Options)
    for name in names:
        text = re.sub("`([a-z_]+)`", lambda found: names.get(found[1], found[0]), TOLD[name].description)
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=name in ("sound_event_detection", "speech_analysis") or getattr(Options(), name),
            annotation=Annotated[kinds[name], typer.Option(*TOLD[name].extra["flag"].split(), help=text)],
        )


# Typer takes the flags from the signature.
analyze.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    sorted([*_flags(), *inspect.signature(analyze, eval_str=True).parameters.values()], key=lambda one: one.kind)[:-1]
)


def check_language(option: str, language: str | None) -> None:
    """Check that a language may be one, before the upload.

    Raises:
        BadRequest: it is neither a language that the bundled engine knows nor a code that another might know.
    """
    if language is None or language.lower() == "multi" or languages.code(language) or _CODE.fullmatch(language):
        return
    near = difflib.get_close_matches(language.capitalize(), languages.NAMES.values(), 1)
    meant = f"; do you mean {near[0]}?" if near else ""
    raise BadRequest(f"{option}: {language!r} is no language: give its code, as fr, or its English name{meant}")


def check_captions(*paths: Path | None) -> None:
    """Check that captions can be written, before the work.

    Raises:
        EarshotError: one cannot.
    """
    for path in filter(None, paths):
        fault = 0
        if path.is_dir():
            fault = errno.EISDIR
        elif not path.parent.is_dir():
            fault = errno.ENOENT
        elif not os.access(path if path.exists() else path.parent, os.W_OK):
            fault = errno.EACCES
        if fault:
            raise EarshotError(f"{path}: {os.strerror(fault)}")


def print_job(client: Client, job_id: str, title: str, json: bool, srt: Path | None, vtt: Path | None) -> bool:
    """Wait for a job, print its result and write its captions; return True if none of its services failed."""
    whole = _print_result(title, _completion(client, job_id), json)
    if srt:
        srt.write_text(client.job_captions(job_id, "srt"), encoding="utf-8")
    if vtt:
        vtt.write_text(client.job_captions(job_id, "vtt"), encoding="utf-8")
    return whole


def _send(client: Client, file: Path, options: JobOptions, idempotency_key: str | None) -> str:
    with _bar() as bar, bar.open(file, "rb", description="sending") as opened:
        return client.analyze_file(opened, options, name=file.name, idempotency_key=idempotency_key).id


@contextmanager
def _continuing(job_id: str) -> Iterator[None]:
    """Tell how to find a job, which goes on, if waiting for it ends early."""
    from earshot_client import ServiceUnreachable

    try:
        yield
    except (KeyboardInterrupt, ServiceUnreachable) as error:
        # The id gives access to the job's events, so it is printed on a terminal but not into a log file.
        known = sys.stderr.isatty()
        read = f"`earshot jobs show {job_id}` shows it" if known else "`earshot jobs list` shows its id"
        typer.echo(f"earshot: the service continues job {shown(job_id)}; {read}", err=True)
        if isinstance(error, ServiceUnreachable):
            # It accepted the job, so its address is right.
            raise EarshotError(f"the service does not answer any more: {error}") from None
        raise


def _completion(client: Client, job_id: str) -> JobEvent:
    """Wait for a job, and return the event that completes it."""
    with _bar() as bar:
        task = bar.add_task("analysing", total=1.0)
        for event in client.job_events(job_id):
            if event.kind == "progress":
                bar.update(task, completed=event.progress.progress)
    return event


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def _print_result(title: str, event: JobEvent, json: bool) -> bool:
    result = event.result
    if json:
        typer.echo(event.data)
    else:
        from infra.cli.summary import show

        show(title, result)
    for service, why in result.errors.items():
        hint = "; the engine may not know this language" if why == LANGUAGE_REFUSED else ""
        typer.echo(f"earshot: {title}: {service}: {why}{hint}", err=True)
    return not result.errors
