"""`earshot jobs`: the jobs of a project, and their results."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from infra.cli import analyze, remote
from infra.cli.output import AsJson, Most, Yes, confirm, show, show_all

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a job.")]

jobs = typer.Typer(help="Jobs of a project: list, read and delete them.", no_args_is_help=True)


@jobs.command("list")
def list_jobs(
    state: Annotated[str | None, typer.Option(help="Only these: accepted, processing or completed.")] = None,
    since: Annotated[str | None, typer.Option(help="Accepted at or after, as 2026-11-23T08:00.")] = None,
    most: Most = 50,
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first. Whoever has an id can read its job."""
    with remote.connected(url, key_file) as client:
        rows = [
            {
                "job": job.id,
                "status": job.status,
                "created": job.created_at,
                "seconds": job.seconds,
                "failed": ", ".join(name for name, status in job.services.items() if status == "error"),
                "file": job.filename,
            }
            for job in islice(client.jobs(state=state, since=since), most)
        ]
    show_all(rows, as_json)


@jobs.command("show")
def show_job(
    job: Id,
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    as_json: AsJson = False,
    srt: Annotated[Path | None, typer.Option(help="Write captions here, as SubRip.")] = None,
    vtt: Annotated[Path | None, typer.Option(help="Write captions here, as WebVTT.")] = None,
) -> None:
    """Print the result of a job as `earshot analyze` does; wait for it if the job is not done.

    The exit status is 1 if a service of the job failed.
    """
    analyze.check_captions(srt, vtt)
    with remote.connected(url, key_file) as client:
        whole = analyze.print_job(client, job, job, as_json, srt, vtt)
    if not whole:
        raise typer.Exit(1)


@jobs.command("delete")
def delete(
    job: Id, yes: Yes = False, url: remote.Url = None, key_file: remote.KeyFile = None, as_json: AsJson = False
) -> None:
    """Delete a job with its result and its recording; cancel it if it is not done."""
    confirm(yes, f"Delete job {job} and its result?")
    with remote.connected(url, key_file) as client:
        client.delete_job(job)
    show({"deleted": job}, as_json)
