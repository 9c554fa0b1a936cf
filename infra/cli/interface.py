"""The command `earshot interface`: prints the documents of the interface without a running service."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from topics.errors import BadRequest


class Kind(StrEnum):
    """The documents to print."""

    OPENAPI = "openapi"
    SESSIONS = "sessions"
    ASYNCAPI = "asyncapi"
    MARKDOWN = "markdown"


def register(app: typer.Typer) -> None:
    app.command("interface")(interface)


def interface(
    document: Annotated[Kind, typer.Argument(help="Which document.")] = Kind.OPENAPI,
    version: Annotated[str, typer.Option(help="Version of OpenAPI: 3.1 or 3.0.")] = "3.1",
) -> None:
    """Print a document of the interface, with the default limits."""
    from app.documents.build import build, everything
    from app.documents.markdown import page
    from app.documents.operations import wanted_version
    from app.options import EdgeOptions

    options = EdgeOptions(bytes(16), Path())
    if document is Kind.MARKDOWN:
        typer.echo(page(everything(options, with_operator=True)))
        return
    try:
        wanted_version({"version": version})
    except BadRequest as error:
        raise typer.BadParameter(str(error)) from None
    name = document.value if document is Kind.ASYNCAPI else f"{document.value}-{version}"
    typer.echo(build(name, options, with_operator=True).decode())
