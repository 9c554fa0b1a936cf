"""`earshot agent`: stream named sources to the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

File = Annotated[Path, typer.Argument(help="File of sources; docs/sources.md has an example.")]


class _RunByDefault(TyperGroup):
    """`earshot agent FILE` is `earshot agent run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


agent = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    help="Stream microphones, cameras and folders to a service: earshot agent FILE.",
)


@agent.command()
def run(
    file: File,
    json: Annotated[bool, typer.Option("--json", help="Log in JSON, one object a line.")] = False,
    level: Annotated[str, typer.Option(help="Least severe lines of the log: debug, info, warning or error.")] = "info",
) -> None:
    """Stream the sources of a file to the service until SIGTERM; SIGHUP reads the file again.

    What the service has not acknowledged is kept, on disk if need be, and sent later, also by the next agent.
    """
    import asyncio

    from infra import logs
    from infra.agent.agent import Agent
    from infra.agent.sources import Sources, read

    if level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter("must be debug, info, warning or error", param_hint="--level")

    def configure(sources: Sources) -> None:
        logs.configure(level, "json" if json else "console", sources.secrets())

    async def main() -> None:
        await Agent(file, sources, configure).run()

    sources = read(file)
    configure(sources)
    asyncio.run(main())


@agent.command()
def check(file: File) -> None:
    """Listen to each source for five seconds: print its codec, rate, channels, level, and what the service hears in it.

    The exit status is 1 if a source cannot be heard.
    """
    from infra.agent.check import report
    from infra.agent.sources import read

    if not report(read(file), typer.echo):
        raise typer.Exit(1)
