"""Shared code of commands that call a running service: options, and plain error messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from infra.errors import variable
from infra.secret_files import SUFFIX, read_secret, secret, secret_of
from infra.urls import is_http, local_url, redact_url
from topics.errors import EarshotError

if TYPE_CHECKING:
    from earshot_client import Client, Sensitivity

Url = Annotated[
    str | None,
    typer.Option(
        envvar="EARSHOT_URL",
        help="URL of the service; by default on this machine, at EARSHOT_HOST and EARSHOT_PORT if they are set.",
    ),
]
KeyFile = Annotated[
    Path | None, typer.Option(help="File with the project key, - for standard input; by default EARSHOT_PROJECT_KEY.")
]
OrgKeyFile = Annotated[
    Path | None, typer.Option(help="File with the organization key, - for standard input; by default EARSHOT_ORG_KEY.")
]
DefaultSensitivity = Annotated[
    int, typer.Option("--sensitivity", min=-2, max=2, help="2 reports the fewest sounds, -2 the most.")
]
TagSensitivity = Annotated[
    list[str] | None,
    typer.Option("--tag-sensitivity", metavar="TAG=N", help="Sensitivity of one tag; may be repeated."),
]


@contextmanager
def connected(url: str | None, key_file: Path | None, whose: Literal["project", "org"] = "project") -> Iterator[Client]:
    """Yield a client of the service, with the key of a project or of an organization.

    Raises:
        EarshotError: no key was given, or the service failed; the message says what to check.
    """
    from earshot_client import Client, EarshotClientError, WrongKey

    owner = "project" if whose == "project" else "organization"
    key, source = _key(f"{whose}_key", owner, key_file)
    url = checked_url(url or local_service(os.environ))
    try:
        client = Client(url, key) if whose == "project" else Client(url, org_key=key)
    except WrongKey as error:
        raise EarshotError(f"{owner} key ({source}): {error}") from None
    try:
        with client:
            yield client
    except (EarshotClientError, OSError) as error:
        raise EarshotError(_message(error, redact_url(url), owner)) from None
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # an error of printing to a terminal with fewer letters
            raise
        raise EarshotError("an argument is not UTF-8") from None


def _key(field: str, whose: str, file: Path | None) -> tuple[str, str]:
    """Return the key and where it came from: a file or the environment; process lists would show an argument."""
    option = "--" + field.removeprefix("project_").replace("_", "-") + "-file"
    if file is not None:
        key = secret_of(field, "standard input", sys.stdin.buffer) if str(file) == "-" else read_secret(field, file)
        return key, f"{option} {file}"
    if found := secret(field, os.environ):
        return found, variable(field if os.environ.get(variable(field)) else field + SUFFIX)
    raise EarshotError(f"no {whose} key: set {variable(field)}, or give {option} or {variable(field + SUFFIX)}")


@contextmanager
def printed(file: Path) -> Iterator[None]:
    """Print the error of one of several files, and go on.

    ServiceUnreachable and WrongKey propagate, because they are not the file's fault.
    """
    from earshot_client import EarshotClientError, ServiceUnreachable, WrongKey

    try:
        yield
    except (ServiceUnreachable, WrongKey):
        raise
    except OSError as error:
        typer.echo(f"earshot: {error.filename or file}: {error.strerror or error}", err=True)
    except EarshotClientError as error:
        typer.echo(f"earshot: {file}: {error}", err=True)


def checked_url(url: str) -> str:
    """Return the URL of a service.

    Raises:
        EarshotError: it is none.
    """
    if not is_http(url):
        raise EarshotError(
            f"{redact_url(url)!r} is not the URL of a service: set --url or EARSHOT_URL to one such as "
            "http://127.0.0.1:8000"
        )
    return url


def local_service(environment: Mapping[str, str]) -> str:
    """Return the local address of a service with these settings; port 8000 if it takes a free port."""
    port = environment.get("EARSHOT_PORT", "").lstrip("0")
    return local_url(environment.get("EARSHOT_HOST") or "127.0.0.1", port or "8000")


def _message(error: Exception, url: str, whose: str) -> str:
    from earshot_client import JobNotFound, ServiceUnreachable, WrongKey

    if isinstance(error, ServiceUnreachable):
        return f"no answer from {url}: {error}; set --url or EARSHOT_URL to the address of the service"
    if isinstance(error, WrongKey):
        return f"the service at {url} does not know this {whose} key ({error})"
    if isinstance(error, JobNotFound):
        return "there is no such job: it never existed, was deleted or has expired, or is another project's"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def sensitivity(default: int, pairs: list[str] | None) -> Sensitivity:
    """Parse the sensitivity options.

    Raises:
        typer.BadParameter: a pair is not TAG=N with N from -2 to 2.
    """
    from earshot_client import Sensitivity

    return Sensitivity(default, dict(_pair(text) for text in pairs or ()))


def _pair(text: str) -> tuple[str, int]:
    tag, _, number = text.rpartition("=")
    if not tag or number not in {"-2", "-1", "0", "1", "2"}:
        raise typer.BadParameter(f"{text!r} is not TAG=N with N from -2 to 2", param_hint="--tag-sensitivity")
    return tag, int(number)
