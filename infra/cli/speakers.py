"""`earshot speakers`: register and recognise voices of an organization."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import remote
from infra.cli.output import AsJson, Row, Yes, confirm, show, show_all
from topics.errors import BadRequest, EarshotError

if TYPE_CHECKING:
    from earshot_client import ReEnrollment, SpeakerProfile, SpeakerTurn

#: Part of the service's error for a recording that is too long to be answered at once.
TOO_LONG = "longer than 10 minutes"

Name = Annotated[str, typer.Argument(help="Letters A to Z and a to z, digits and underscores.")]

speakers = typer.Typer(help="Voices of an organization: register and recognise them.", no_args_is_help=True)


@speakers.command("add")
def add(
    name: Name,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Recordings of this voice alone; 5 to 20 are best.")
    ] = None,
    from_job: Annotated[str | None, typer.Option(metavar="ID", help="Add a voice from this job's transcript.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Label of that voice, as SPEAKER_01.")] = None,
    url: remote.Url = None,
    org_key_file: remote.OrgKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Add voice samples to a speaker; the first creates the speaker; exit status 1 if one was not added."""
    if (from_job is None) is not (speaker is None) or bool(files) is (from_job is not None):
        raise BadRequest("give recordings, or --from-job with --speaker")
    added: list[SpeakerProfile] = []
    with remote.connected(url, org_key_file, "org") as client:
        if from_job is not None and speaker is not None:
            from earshot_client import JobVoice

            show(_row(client.add_voice(name, JobVoice(from_job, speaker))), as_json)
            return
        for file in files or ():
            with remote.printed(file):
                added.append(client.add_voice(name, file))
    if added:
        show(_row(added[-1]), as_json)
    if len(added) < len(files or ()):
        raise typer.Exit(1)


@speakers.command("list")
def list_speakers(url: remote.Url = None, org_key_file: remote.OrgKeyFile = None, as_json: AsJson = False) -> None:
    """List the registered speakers."""
    with remote.connected(url, org_key_file, "org") as client:
        found = client.speakers()
    shown = [{"display_name": one.display_name} if any(two.display_name for two in found) else {} for one in found]
    show_all([{**_row(one), **more} for one, more in zip(found, shown, strict=True)], as_json)


@speakers.command("name")
def name_speaker(
    name: Name,
    display_name: Annotated[str, typer.Argument(help='What people call them, as "Anna Müller"; "" for the name.')],
    url: remote.Url = None,
    org_key_file: remote.OrgKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Set the display name of a speaker, which lists and new transcripts show."""
    with remote.connected(url, org_key_file, "org") as client:
        show(_row(client.name_speaker(name, display_name or None)), as_json)


@speakers.command("recognize")
def recognize(
    file: Annotated[Path, typer.Argument(help="A recording of at most ten minutes.")],
    url: remote.Url = None,
    org_key_file: remote.OrgKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Print who speaks when, and how similar the registered voice is."""
    from earshot_client import SpeakerRequestRefused, UnknownFormat

    with remote.connected(url, org_key_file, "org") as client:
        try:
            turns = client.recognize(file)
            outdated = [one.name for one in client.speakers() if not one.is_compatible]
        except (SpeakerRequestRefused, UnknownFormat) as error:
            hint = f"; try earshot analyze --speakers {file}" if TOO_LONG in str(error) else ""
            raise EarshotError(f"{file}: {error}{hint}") from None
    if outdated:
        names = ", ".join(outdated)
        print(f"earshot: not recognised, because another model made their samples: {names}", file=sys.stderr)
    if as_json:
        show_all([_row(one) for one in turns], as_json)
    else:
        from infra.cli.summary import show_turns

        show_turns(str(file), turns)


@speakers.command("remove")
def remove(
    name: Name,
    yes: Yes = False,
    url: remote.Url = None,
    org_key_file: remote.OrgKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete a speaker with all samples and recordings."""
    confirm(yes, f"Delete speaker {name} and all their voice samples?")
    with remote.connected(url, org_key_file, "org") as client:
        client.delete_speaker(name)
    show({"deleted": name}, as_json)


@speakers.command("re-enroll")
def re_enroll(
    name: Annotated[str | None, typer.Argument(help="By default all that are not compatible.")] = None,
    url: remote.Url = None,
    org_key_file: remote.OrgKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Embed voice samples again after a change of the model, if recordings were kept.

    Exit status 1 if some samples cannot be: remove the speaker and add them again.
    """
    with remote.connected(url, org_key_file, "org") as client:
        names = [name] if name else [one.name for one in client.speakers() if not one.is_compatible]
        done = [client.re_enroll(name) for name in names]
    show_all([_row(one) for one in done], as_json)
    if not done:
        typer.echo("earshot: the model knows the samples of all speakers; nothing was embedded again", err=True)
    if any(one.left for one in done):
        raise typer.Exit(1)


def _row(one: SpeakerProfile | SpeakerTurn | ReEnrollment) -> Row:
    """Return the service's answer as a row, with its own field names."""
    import msgspec

    row: Row = msgspec.to_builtins(one)
    return row
