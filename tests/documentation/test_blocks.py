"""Every block of commands of the README and of some pages, run in order in a fresh copy of the project.

Only what a reader has to replace is replaced: `esp_...` and `eso_...` by the keys that `make run` printed, and the port
by a free one. What a page shows of the output is compared with it; `…` there stands for anything, as a line of its own
for any number of lines. Scores differ a little between processors, so a decimal may differ by two in its last digit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.conftest import ROOT
from tests.documentation.pages import Block, read
from tests.process import free_port, terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

START: Final = "make run\n"
READY_SECONDS: Final = 600.0
ANYTHING: Final = "…"
#: What is not compared letter by letter. A number before `…` is only the beginning of one.
LOOSE: Final = re.compile(rf"({ANYTHING}|\d+\.\d+(?![\d{ANYTHING}]))")
#: Which commands run a program of a page: the client has an environment of its own there.
PYTHON: Final = ".client/bin/python - <<'THE END'\n{}\nTHE END\n"


class Step(msgspec.Struct, frozen=True):
    """A block of commands and the output that the page shows, None where it shows none."""

    block: Block
    output: str | None


def steps(page: str) -> Iterator[Step]:
    """Yield the blocks of a page that are run, in order."""
    blocks = [*read(ROOT / page).blocks(), Block(0, "", "")]
    for block, after in pairwise(blocks):
        if block.language == "sh" or "earshot_client" in block.text:
            yield Step(block, after.text if after.language == "text" else None)


class Shell:
    """A bash that runs one block after another, as a terminal does, and stops at the first command that fails."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str) -> str:
        """Run a block; return what it prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        mark = f"--- {time.monotonic_ns()} ---"
        self._process.stdin.write(f"{script}\nprintf '\\n%s\\n' '{mark}'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == mark:
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"a command failed:\n{script}\nIt printed:\n{''.join(lines)}")

    def close(self) -> None:
        """End the shell."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project as a clone has it."""
    target = tmp_path_factory.mktemp("checkout") / "earshot"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def environment(port: int) -> dict[str, str]:
    """Return what a new user's shell has, the port, and patience."""
    foreign = ("EARSHOT_", "VIRTUAL_ENV", "PYTHON", "COVERAGE", "PYTEST")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = str(Path(sys.executable).parent)
    clean["PATH"] = os.pathsep.join(part for part in clean["PATH"].split(os.pathsep) if part != own)
    # A machine that does something else too needs longer for the words of a transcript.
    return {**clean, "EARSHOT_PORT": str(port), "EARSHOT_SPEECH_TIMEOUT": "300"}


@contextmanager
def running(checkout: Path, port: int) -> Iterator[str]:
    """Run `make run` on an empty data directory; yield what it prints until it serves, and stop it with Ctrl-C."""
    shutil.rmtree(checkout / "data", ignore_errors=True)
    log = checkout.parent / "make-run.log"
    log.unlink(missing_ok=True)
    with terminal(log) as screen, log.open("ab") as output, ExitStack() as stack:
        process = subprocess.Popen(
            START, shell=True, cwd=checkout, env=environment(port), stdout=screen, stderr=output, start_new_session=True
        )
        stack.callback(_interrupt, process)
        until = time.monotonic() + READY_SECONDS
        while "earshot analyze" not in (said := log.read_text()) or "service.ready" not in said:
            assert process.poll() is None, said
            assert time.monotonic() < until, said
            time.sleep(0.2)
        yield said


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # As a terminal does: to all processes of the foreground.
        os.killpg(process.pid, 2)
    process.wait(60)


def assert_like(output: str, expected: str) -> None:
    """Check an output line by line, except for the spaces that end a line and the last digits of decimals."""
    pattern = "".join(
        r"(?:.*\n)*" if line == ANYTHING else "".join(map(_pattern, LOOSE.split(line))) + r"\n"
        for line in _lines(expected)
    )
    printed = "".join(f"{line}\n" for line in _lines(output))
    assert re.fullmatch(pattern, printed), f"expected:\n{expected}\nprinted:\n{printed}"


def _pattern(part: str) -> str:
    if part == ANYTHING:
        return ".*"
    if not LOOSE.fullmatch(part):
        return re.escape(part)
    digits = len(part.partition(".")[2])
    near = (float(part) + step * 10**-digits for step in range(-2, 3))
    return f"(?:{'|'.join(re.escape(f'{one:0{len(part)}.{digits}f}') for one in near)})"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/jobs.md", "docs/speakers.md"])
def test_the_commands_of_a_page(page: str, checkout: Path) -> None:
    first, *rest = steps(page)
    if first.block.text != START:
        # The page says that it needs what the first two blocks of docs/start.md do.
        first, variables, *_ = steps("docs/start.md")
        rest = [variables, *steps(page)]
    assert first.block.text == START
    port = free_port()
    with running(checkout, port) as said:
        places = {
            "esp_...": re.findall(r"esp_\w{36}", said)[0],
            "eso_...": re.findall(r"eso_\w{36}", said)[0],
            "127.0.0.1:8000": f"127.0.0.1:{port}",
        }
        if first.output is not None:
            welcome = first.output.replace("127.0.0.1:8000", places["127.0.0.1:8000"])
            assert all(line in said for line in welcome.replace(ANYTHING, "").splitlines())
        shell = Shell(checkout, environment(port))
        try:
            for step in rest:
                script = step.block.text if step.block.language == "sh" else PYTHON.format(step.block.text)
                for place, ours in places.items():
                    script = script.replace(place, ours)
                output = shell.run(script)
                if step.output is not None:
                    assert_like(output, step.output)
        finally:
            shell.close()


def test_outputs_are_compared() -> None:
    output = "one  \ntwo 0.92\nthree\nfour\nfive\n"
    for expected in (
        output,
        output.replace("0.92", "0.90"),
        "one\ntwo 0.…\n…\nfive\n",
        "…\nfive",
        "one\n…\n",
        "…\nfour\n…",
    ):
        assert_like(output, expected)
    for expected in ("one\n", "two\n…", "one\ntwo 0.95\n…", "one\ntwo 0.8…\n…", "…\nsix", "one…five", "…\nfour"):
        with pytest.raises(AssertionError):
            assert_like(output, expected)
