"""The command `earshot interface`: prints the documents of the interface without a running service."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from topics.errors import BadRequest

Kind = Literal["openapi", "sessions", "asyncapi", "markdown"]


def interface(
    document: Annotated[Kind, typer.Argument(help="Which document.")] = "openapi",
    version: Annotated[str, typer.Option(help="Version of OpenAPI: 3.1 or 3.0.")] = "3.1",
) -> None:
    """Print a document of the interface, with the default limits."""
    from app.documents.build import build, everything
    from app.documents.markdown import page
    from app.documents.operations import wanted_version
    from app.options import EdgeOptions

    options = EdgeOptions(bytes(16), Path())
    if document == "markdown":
        typer.echo(page(everything(options, with_operator=True)))
        return
    try:
        wanted_version({"version": version})
    except BadRequest as error:
        raise typer.BadParameter(str(error)) from None
    name = document if document == "asyncapi" else f"{document}-{version}"
    typer.echo(build(name, options, with_operator=True).decode())
