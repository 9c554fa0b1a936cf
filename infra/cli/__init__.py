"""The command `earshot`: the modules listed here have its commands, and import heavy modules only inside them."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.errors import Unfit, variable
from infra.extras import how_to_install
from topics.errors import EarshotError

if TYPE_CHECKING:
    import typer

#: The commands of each module, or groups of commands, in the order of the help.
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "serve": ["serve"],
    "restart": ["restart"],
    "doctor": ["doctor"],
    "backup": ["backup", "restore", "salvage", "set-aside"],
    "accept": ["accept-log"],
    "listen": ["listen"],
    "agent": ["agent"],
    "detect": ["detect"],
    "analyze": ["analyze"],
    "jobs": ["jobs"],
    "speakers": ["speakers"],
    "alarms": ["alarms"],
    "rules": ["rules"],
    "destinations": ["destinations"],
    "explore": ["explore"],
    "models": ["models"],
    "train_tag": [],  # It is one of `models`.
    "evaluate": ["evaluate"],
    "engines": ["engines"],
    "accounts": ["org", "project", "projects", "key"],
    "link": ["link"],
    "usage": ["usage"],
    "cluster": ["cluster", "drain"],
    "partitions": ["partitions"],
    "dead_letters": ["dead-letters"],
    "settings": ["config"],
    "interface": ["interface"],
}


def build() -> typer.Typer:
    import typer
    from typer.core import TyperOption

    from infra.cli import version

    # Otherwise the help of each flag says `<bool>`, as if it took a value.
    TyperOption.display_type_rich = lambda self, ctx: (  # type: ignore[method-assign]
        None if self.is_flag else self.metavar or self.display_type(ctx)
    )
    app = typer.Typer(
        name="earshot",
        help="Sound analysis on your own machines: live audio in, sound events out.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        callback=version.options,
    )
    for module in COMMANDS:
        add_commands(app, module)
    return app


def add_commands(app: typer.Typer, module: str) -> None:
    """Import a module of this package and add its commands."""
    import typer

    imported = importlib.import_module(f"infra.cli.{module}")
    for name in COMMANDS[module]:
        command = getattr(imported, name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, hidden=name == "projects")  # Another name of `project`.
        else:
            app.command(name)(command)


def main(command: Callable[[], object] | None = None) -> None:
    """Run `command`, by default the command line; report an expected error in one line on stderr, with status 1.

    A missing package is one. A setting that cannot work, or a path that this user may not use, gives status 2, as a
    wrong option does.
    """
    try:
        # Imported here, so that Ctrl-C during the imports ends like any other.
        from infra.cli import output

        output.open_closed_streams()
        output.watch_output()
        (command or build())()
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
    except EarshotError as error:
        print(": ".join(["earshot", str(error), *getattr(error, "__notes__", ())]), file=sys.stderr)
        raise SystemExit(2 if isinstance(error, Unfit) else 1) from None
    except OSError as error:
        print(f"earshot: {_fault(error)}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, PermissionError) and error.filename else 1) from None
    except ModuleNotFoundError as error:
        advice = how_to_install(error.name or "")
        if advice is None:
            raise
        print(f"earshot: {advice}", file=sys.stderr)
        raise SystemExit(1) from None


def _fault(error: OSError) -> str:
    if not isinstance(error, PermissionError) or error.filename is None:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    fault = f"{error.filename} cannot be used: {error.strerror}"
    path = Path(error.filename).absolute()
    data = Path(os.environ.get(variable("data")) or "data").expanduser().absolute()
    if path.is_relative_to(data) or data.is_relative_to(path):
        return f"{variable('data')}: {fault}: run this as the user of the service"
    return fault
