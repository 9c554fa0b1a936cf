"""The command `earshot`: each module listed here registers its commands, and imports heavy modules only inside them."""

import importlib
import sys
from typing import Final

import typer

from infra.cli import output
from infra.errors import WrongSetting
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

    A setting that cannot work gives status 2, like a wrong option.
    """
    output.end_with_the_reader()
    try:
        build()()
    except EarshotError as error:
        print(": ".join(["earshot", str(error), *getattr(error, "__notes__", ())]), file=sys.stderr)
        raise SystemExit(2 if isinstance(error, WrongSetting) else 1) from None
    except ModuleNotFoundError as error:
        advice = how_to_install(error.name or "")
        if advice is None:
            raise
        print(f"earshot: {advice}", file=sys.stderr)
        raise SystemExit(1) from None
