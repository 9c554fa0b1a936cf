"""Commands in shell blocks: extracts them, and checks whether `earshot`, `make` and Python would accept them."""

import importlib.util
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import typer
from typer.exceptions import TyperException

from infra.cli import build
from tests.soak import RUNS

#: Ends a command; shlex returns each character as a separate token.
_PUNCTUATION: Final = "();<>|&\n"
_COMMENT: Final = re.compile(r"(?m)(^|\s)#.*$")
_HEREDOC: Final = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?^\2$", re.DOTALL | re.MULTILINE)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*")
_TARGET: Final = re.compile(r"(?m)^([\w./-]+(?: [\w./-]+)*):(?!=)")


def commands(script: str) -> Iterator[list[str]]:
    """Yield the commands of a script as words, without leading assignments and `sudo`.

    Raises:
        ValueError: A quotation mark is not closed.
    """
    plain = _COMMENT.sub(r"\1", _HEREDOC.sub(r"\3", script)).replace("\\\n", " ")
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for token in (*lexer, "\n"):
        if set(token) <= set(_PUNCTUATION):
            if command := _command(words):
                yield command
            words = []
        else:
            words.append(token)


def fault(command: Sequence[str], makefile: str) -> str | None:
    """Return the fault of a command of this project; None if there is none, and for other commands."""
    program, arguments = Path(command[0]).name, list(command[1:])
    if program == "earshot":
        return earshot_fault(arguments)
    if program == "make":
        return _make_fault(arguments, makefile)
    if program.startswith("python") and arguments[:1] == ["-m"]:
        return _module_fault(arguments[1]) if arguments[1:] else "no module is named"
    return None


def earshot_fault(arguments: Sequence[str]) -> str | None:
    """Parse the arguments of `earshot` without running it; return the error."""
    command: Any = _earshot()
    try:
        # `--help` prints.
        with redirect_stdout(io.StringIO()):
            context = command.make_context("earshot", list(arguments))
            while hasattr(command, "commands"):
                name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
                context = command.make_context(name, rest, parent=context)
    except typer.Exit:
        return None
    except TyperException as error:
        # A group without a command prints its help, and has no message.
        message: str = cast(Any, error).format_message()
        return message or f"{' '.join(arguments) or 'earshot'} is not a whole command"
    return None


@cache
def _earshot() -> Any:
    return typer.main.get_command(build())


def _make_fault(arguments: Sequence[str], makefile: str) -> str | None:
    if arguments[:1] == ["soak"]:
        names = " ".join(arguments[1:]).removeprefix("NAMES=").split()
        if unknown := set(names) - RUNS.keys():
            return f"make soak knows no {', '.join(sorted(unknown))}"
    targets = {name for match in _TARGET.finditer(makefile) for name in match[1].split()}
    for word in arguments:
        if not word.startswith("-") and "=" not in word and word not in targets:
            return f"the Makefile has no target {word}"
    return None


def _module_fault(name: str) -> str | None:
    if name.partition(".")[0] not in ("app", "benchmarks", "infra", "streams", "tests", "topics"):
        return None
    try:
        there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        there = False
    return None if there else f"there is no module {name}"


def _command(words: list[str]) -> list[str]:
    rest = list(words)
    while rest and (rest[0] == "sudo" or _ASSIGNMENT.fullmatch(rest[0])):
        rest = rest[3 if rest[:2] == ["sudo", "-u"] else 1 :]
    return rest
