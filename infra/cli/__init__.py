"""The command `earshot`: each module listed here registers its commands, and imports heavy modules only inside them."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.errors import WrongSetting, variable
from infra.extras import how_to_install
from topics.errors import EarshotError

if TYPE_CHECKING:
    import typer

MODULES: Final = (
    "infra.cli.serve",
    "infra.cli.backup",
    "infra.cli.listen",
    "infra.cli.detect",
    "infra.cli.analyze",
    "infra.cli.jobs",
    "infra.cli.speakers",
    "infra.cli.explore",
    "infra.cli.models",
    "infra.cli.train_tag",
    "infra.cli.evaluate",
    "infra.cli.engines",
    "infra.cli.accounts",
    "infra.cli.link",
    "infra.cli.usage",
    "infra.cli.nodes",
    "infra.cli.settings",
    "infra.cli.interface",
)


def build() -> typer.Typer:
    import typer

    app = typer.Typer(
        name="earshot",
        help="Sound analysis on your own machines: live audio in, sound events out.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for module in MODULES:
        importlib.import_module(module).register(app)
    return app


def main() -> None:
    """Run the command line; report an expected error or a missing package in one line on stderr, with status 1.

    A setting that cannot work, or a path that this user may not use, gives status 2, like a wrong option.
    """
    try:
        # Imported here, so that Ctrl-C during the imports ends like any other.
        from infra.cli import output

        output.open_closed_streams()
        output.end_with_the_reader()
        build()()
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
    except EarshotError as error:
        print(": ".join(["earshot", str(error), *getattr(error, "__notes__", ())]), file=sys.stderr)
        raise SystemExit(2 if isinstance(error, WrongSetting) else 1) from None
    except OSError as error:
        # If the output failed, Python would report it once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
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
