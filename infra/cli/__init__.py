"""The command `earshot`: each module listed here registers its commands, and imports heavy modules only inside them."""

import importlib
import os
import sys
from pathlib import Path
from typing import Final

import typer

from infra.cli import output
from infra.errors import WrongSetting, variable
from infra.extras import how_to_install
from topics.errors import EarshotError

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
    output.open_closed_streams()
    output.end_with_the_reader()
    try:
        build()()
    except EarshotError as error:
        print(": ".join(["earshot", str(error), *getattr(error, "__notes__", ())]), file=sys.stderr)
        raise SystemExit(2 if isinstance(error, WrongSetting) else 1) from None
    except PermissionError as error:
        if error.filename is None:
            raise
        fault = f"{error.filename} cannot be used: {error.strerror}"
        if _is_in_data(Path(error.filename)):
            fault = f"{variable('data')}: {fault}: run this as the user of the service"
        print(f"earshot: {fault}", file=sys.stderr)
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        advice = how_to_install(error.name or "")
        if advice is None:
            raise
        print(f"earshot: {advice}", file=sys.stderr)
        raise SystemExit(1) from None


def _is_in_data(path: Path) -> bool:
    """Return whether a path is the data directory, is in it, or is above it."""
    path, data = path.absolute(), Path(os.environ.get(variable("data")) or "data").expanduser().absolute()
    return path.is_relative_to(data) or data.is_relative_to(path)
