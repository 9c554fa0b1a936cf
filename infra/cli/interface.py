"""The command `earshot interface`: prints the documents of the interface without a running service."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Kind = Literal["openapi", "sessions", "asyncapi", "markdown"]


def interface(
    document: Annotated[Kind, typer.Argument(help="Which document.")] = "openapi",
) -> None:
    """Print a document of the interface, with the default limits."""
    from app.documents.build import build, everything
    from app.documents.markdown import page
    from app.options import EdgeOptions

    options = EdgeOptions(secret=bytes(16), spool=Path())
    if document == "markdown":
        typer.echo(page(everything(options, with_operator=True)))
        return
    typer.echo(build(document, options, with_operator=True).decode())
