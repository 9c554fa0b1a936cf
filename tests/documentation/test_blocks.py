"""Runs every shell and Python block of the README and all pages, in order, in a fresh copy of the project.

`NOT_RUN` names the blocks that cannot run here, each with its reason.

A simulated microphone makes `arecord` play a recording. Only placeholders are replaced: `esp_...` and `eso_...` by the
keys that `make run` printed, `street.flac` and `espresso.flac` by recordings, and the port by a free one. Output is
compared with the page's; `…` there matches anything, as a line of its own any number of lines. Scores differ slightly
between processors, so a decimal may differ by two in its last digit.
"""

import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import numpy as np
import pytest
import soundfile

from earshot_client import Client
from infra.cli import build, train_tag
from infra.cli.pcm import from_file
from infra.db.intact import read_only
from infra.db.schema import metadata
from infra.scratch import BESIDE
from infra.teaching.tags import HeldOutFigures, LearntTag
from tests.conftest import ROOT
from tests.documentation.pages import Block, files, read
from tests.ports import free_port
from tests.process import terminal
from tests.unit.infra.conftest import invoked
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

START: Final = "make run\n"
ADDRESS: Final = "127.0.0.1:8000"
READY_SECONDS: Final = 600.0
#: For temporary files that must be on a disk.
DISK: Final = Path("/var/tmp")
ANYTHING: Final = "…"
#: Parts that are not compared exactly. A number before `…` is only a prefix.
LOOSE: Final = re.compile(rf"({ANYTHING}|\d+\.\d+(?![\d{ANYTHING}]))")
#: Pages that need the client's environment create it; it is created once.
CLIENT: Final = "python3 -m venv .client\n.client/bin/pip install -q ./app/client\n"
#: Runs a page's Python program in the client's environment.
PYTHON: Final = ".client/bin/python - <<'THE END'\n{}\nTHE END\n"


class Step(msgspec.Struct, frozen=True):
    """A block of commands and the output that the page shows; None if it shows none."""

    block: Block
    output: str | None


#: The output of these depends on usage and speakers, so they need a separate service; the README follows its own page.
FIRST_PAGES: Final = (("docs/start.md", "README.md"), ("docs/jobs.md",), ("docs/speakers.md",))
#: docs/client.md creates the environment for programs.
OTHER_PAGES: Final = (
    *(
        page
        for path in sorted((ROOT / "docs").glob("*.md"))
        if (page := f"docs/{path.name}") not in chain(*FIRST_PAGES)
    ),
    "app/client/README.md",
)
VENDOR: Final = "the vendor's client is a package of the index; tests/interop runs it"
CAMERA: Final = "it needs a camera, and a microphone beside that of the test"
ENGINES: Final = "it needs engines on another machine, or weights from the network"
OWN_MODEL: Final = "it needs a model or recordings of the reader"
KAFKA: Final = "it needs Kafka; tests/kafka and tests/cluster run it"
CONTAINERS: Final = "it needs an engine for containers; `make image-test` builds and runs the image"
SYSTEM: Final = "it changes the system: systemd, users, /opt, /var/lib"
ENDLESS: Final = "it goes on until Ctrl-C"
#: Blocks that cannot run here, by page and first line, with the reason.
NOT_RUN: Final[dict[str, dict[str, str]]] = {
    "docs/alarms.md": {
        "earshot destinations test": "it needs ntfy.sh; tests/unit/streams/deliveries posts to a server of its own"
    },
    "docs/contributing.md": {"make check": "it runs this test too, and takes hours"},
    "docs/engines.md": {
        "EARSHOT_SPEECH_URL=": ENGINES,
        "make tiny": ENGINES,
        "export EARSHOT_ENGINES_KEY_FILE=": ENGINES,
        "export EARSHOT_SPEECH_URL=": ENGINES,
    },
    "docs/first-cluster.md": {"export POSTGRES_PASSWORD=": CONTAINERS, "docker compose": CONTAINERS},
    "docs/jobs.md": {"from cochl.sense import": VENDOR},
    "docs/kafka.md": {
        "make kafka": KAFKA,
        "make cluster": KAFKA,
        "EARSHOT_BROKER=": KAFKA,
        "export EARSHOT_BROKER=kafka://k1:9092": KAFKA,
        "export EARSHOT_KAFKA_PREFIX=": KAFKA,
        "export EARSHOT_BROKER=kafka://k1:9093": KAFKA,
        "make extra": "it installs packages that no other test needs",
    },
    "docs/live.md": {
        "ffmpeg": CAMERA,
        'echo "X-Api-Key: $EARSHOT_PROJECT_KEY" | curl -sN': ENDLESS,
    },
    "docs/models.md": {
        "earshot explore": "it needs the extra `lab`; a test below runs it",
        "earshot models add": OWN_MODEL,
        "earshot models train-tag": "it needs recordings of the reader; a test below prints its lines",
        "earshot evaluate": OWN_MODEL,
    },
    "docs/openai.md": {"import os": "OpenAI's client is a package of the index; tests/interop runs it"},
    "docs/running.md": {
        "git clone": SYSTEM,
        "cp infra/deploy": SYSTEM,
        "kubectl create": "it needs a cluster; `make chart-test` checks the chart",
        "docker build": CONTAINERS,
        "sudo -u earshot": SYSTEM,
        "export EARSHOT_ADMIN_URL=": "it needs a service elsewhere",
        "earshot usage --recount": "it needs the service stopped; tests/recovery/test_jobs_kill.py runs it",
        "cd /opt/earshot": SYSTEM,
        "systemctl stop": SYSTEM,
    },
    "docs/sessions.md": {"from cochl.sense import": VENDOR},
    "docs/speakers.md": {"from cochl.sense import": VENDOR},
    "docs/troubleshooting.md": {
        "EARSHOT_LOG_LEVEL=debug": ENDLESS,
        "earshot partitions skip": "no partition has stopped; tests/cluster runs it",
        'rm -r "$EARSHOT_DATA"': "no table was damaged",
    },
}

#: What a reader may have made before the other pages, which must leave it as it is.
MADE_BEFORE: Final = Step(
    Block(
        0,
        "sh",
        """earshot speakers add Kim infra/examples/kim.ogg
earshot speakers add Sam infra/examples/sam.ogg
earshot analyze infra/examples/door.ogg
echo "X-Api-Key: $EARSHOT_PROJECT_KEY" |
  curl -s -H @- -X PATCH $EARSHOT_URL/api/v1/project -d '{"keep_audio_seconds":7200,"sound_rule":{"windows":2,"of":3}}'
""",
    ),
    None,
)
#: Tables with what expires or counts.
PASSING: Final = {"tokens", "secrets"}
#: Columns that the service changes: a key counts as shown once `make run` has printed everything.
CHANGING: Final = {"last_used_at", "shown"}
#: Commands and calls that add a sample to a speaker, or remove it.
SPEAKER: Final = re.compile(r"speakers (?:add|remove) (\w+)|speaker=(\w+)|(?:add_voice|delete_speaker)\(\"(\w+)")


def steps(page: str) -> Iterator[Step]:
    """Yield the blocks of a page that are run, in order."""
    blocks = [*read(ROOT / page).blocks(), Block(0, "", "")]
    for block, after in pairwise(blocks):
        if block.language in ("sh", "python") and not block.text.startswith(tuple(NOT_RUN.get(page, {}))):
            yield Step(block, after.text if after.language == "text" else None)


class Shell:
    """A bash that runs one block after another, as in a terminal, and stops at the first failing command."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self._process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # Otherwise an error would count as an answer, unless the page shows one.
        self.run('curl() { command curl ${REFUSED:---fail-with-body} "$@"; }; export -f curl')

    def run(self, script: str) -> str:
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
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    """A copy of the project as cloned, on disk, because an installation is too large for memory; and a microphone."""
    with TemporaryDirectory(dir=DISK if DISK.exists() else None, prefix="earshot-checkout-") as directory:
        folder = Path(directory)
        for path in files():
            copy = folder / "earshot" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        # What the test's own installation has: kernels for this processor, and the program that installs.
        shutil.copytree(BESIDE, folder / "earshot" / BESIDE.relative_to(ROOT), ignore=shutil.ignore_patterns("*.pyc"))
        if (uv := ROOT / ".uv" / "bin" / "uv").exists():
            (folder / "uv").symlink_to(uv)
        (folder / "pcm").write_bytes(b"".join(from_file(ROOT / "infra/examples/door.ogg").blocks))
        (folder / "arecord").write_text(f"#!/bin/sh\nexec cat {folder}/pcm\n")
        (folder / "arecord").chmod(0o755)
        _espresso_machine(folder)
        yield folder / "earshot"


def _espresso_machine(folder: Path) -> None:
    """Write half a minute that has a sound every second or two, with others beside it."""
    alarm, rate = soundfile.read(ROOT / "infra/examples/smoke-alarm.flac")
    meeting, _ = soundfile.read(ROOT / "infra/examples/meeting.ogg")
    alarms = np.tile(alarm, 8) / 2
    soundfile.write(folder / "espresso.flac", np.clip(alarms + np.resize(meeting, len(alarms)), -1, 1), rate)


def environment(checkout: Path, port: int) -> dict[str, str]:
    """Return a new user's shell environment, a microphone, the port, and longer timeouts."""
    foreign = ("EARSHOT_", "VIRTUAL_ENV", "PYTHON", "COVERAGE", "PYTEST")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = str(Path(sys.executable).parent)
    parts = [str(checkout.parent), *clean["PATH"].split(os.pathsep)]
    clean["PATH"] = os.pathsep.join(part for part in parts if part != own)
    # A busy machine needs longer for a transcript.
    return {**clean, "EARSHOT_PORT": str(port), "EARSHOT_SPEECH_TIMEOUT": "300"}


@contextmanager
def running(checkout: Path, port: int) -> Iterator[str]:
    """Run `make run` on an empty data directory; yield its output until it serves, and stop it with Ctrl-C."""
    shutil.rmtree(checkout / "data", ignore_errors=True)
    log = checkout.parent / "make-run.log"
    log.unlink(missing_ok=True)
    with terminal(log) as screen, log.open("ab") as output, ExitStack() as stack:
        process = subprocess.Popen(
            START,
            shell=True,
            cwd=checkout,
            env=environment(checkout, port),
            stdout=screen,
            stderr=output,
            start_new_session=True,
        )
        stack.callback(_interrupt, process)

        def said() -> str | None:
            text = log.read_text(errors="replace")  # A character may be half written.
            assert process.poll() is None, text
            return text if "earshot analyze" in text and "service.ready" in text else None

        yield wait_for(said, READY_SECONDS)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # Like a terminal: signal all processes of the foreground.
        os.killpg(process.pid, 2)
    process.wait(60)


def assert_like(output: str, expected: str) -> None:
    """Compare output line by line, ignoring trailing spaces and the last digits of decimals."""
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


def variables() -> Step:
    """Return the block of docs/start.md that other pages require."""
    return list(steps("docs/start.md"))[1]


def run_page(page: str, shell: Shell, places: Mapping[str, str]) -> None:
    """Run a page's blocks after `make run`, and compare the output."""
    first, *rest = steps(page)
    if first.block.text != START:
        rest = [variables(), first, *rest]
    run_steps(rest, shell, places)


def run_steps(steps: Sequence[Step], shell: Shell, places: Mapping[str, str]) -> None:
    for step in steps:
        if step.block.text == CLIENT and (shell.directory / ".client").exists():
            continue
        script = step.block.text if step.block.language == "sh" else PYTHON.format(step.block.text)
        for place, ours in places.items():
            script = script.replace(place, ours)
        refused = "--no-fail" if step.output is not None and '"error"' in step.output else ""
        output = shell.run(f"REFUSED={refused}\n{script}")
        if step.output is not None:
            assert_like(output, step.output)


def things(data: Path, places: Mapping[str, str]) -> set[str]:
    """Return the settings, keys, plans, voices and sounds in the database, and the demo project's jobs and sessions."""
    found = set()
    with closing(read_only(data / "earshot.db")) as database:
        for table in metadata.sorted_tables:
            columns = ", ".join(f'"{one.name}"' for one in table.columns if one.name not in CHANGING)
            if table.name not in PASSING:
                found |= {f"{table.name}: {row}" for row in database.execute(f"SELECT {columns} FROM {table.name}")}
    with Client(f"http://{places[ADDRESS]}", places["esp_..."]) as client:
        return found | {f"job {one.id}" for one in client.jobs()} | {f"session {one.id}" for one in client.sessions()}


def run_pages(pages: Sequence[str], checkout: Path, made_before: Sequence[Step] = ()) -> None:
    """Run pages on one service, each in its own shell; none may change or delete what was there before it."""
    port = free_port()
    with running(checkout, port) as said:
        places = {
            "esp_...": re.findall(r"esp_\w{36}", said)[0],
            "eso_...": re.findall(r"eso_\w{36}", said)[0],
            ADDRESS: f"127.0.0.1:{port}",
            "street.flac": "infra/examples/smoke-alarm.flac",
            "espresso.flac": str(checkout.parent / "espresso.flac"),
        }
        with closing(Shell(checkout, environment(checkout, port))) as shell:
            run_steps(made_before, shell, places)
        before = things(checkout / "data", places)
        for page in pages:
            first, *_ = steps(page)
            if first.block.text == START and first.output is not None:
                welcome = first.output.replace(ADDRESS, places[ADDRESS])
                assert all(line in said for line in welcome.replace(ANYTHING, "").splitlines())
            with closing(Shell(checkout, environment(checkout, port))) as shell:
                run_page(page, shell, places)
            after = things(checkout / "data", places)
            assert not before - after, f"{page} changed or deleted this"
            before = after


@pytest.mark.parametrize("pages", FIRST_PAGES, ids=itemgetter(0))
def test_commands_of_page_run(pages: Sequence[str], checkout: Path) -> None:
    run_pages(pages, checkout)


def test_commands_of_all_other_pages_run(checkout: Path) -> None:
    run_pages([page for page in OTHER_PAGES if any(steps(page))], checkout, [variables(), MADE_BEFORE])


def test_each_page_names_speakers_of_its_own() -> None:
    """Each page with speakers runs on a service of its own, but a reader has one service for all."""
    named: dict[str, str] = {}
    for page in chain(*FIRST_PAGES, OTHER_PAGES):
        for step in steps(page):
            for name in filter(None, chain.from_iterable(SPEAKER.findall(step.block.text))):
                assert named.setdefault(name, page) == page, f"{page} changes or deletes {name}, made by {named[name]}"
    assert {"Kim", "Sam"} <= named.keys()


def shown_after(page: str, command: str) -> str:
    """Return the output that a page shows for the block that begins with a command."""
    blocks = read(ROOT / page).blocks()
    return next(after.text for block, after in pairwise(blocks) if block.text.startswith(command))


def test_explore_prints_what_its_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("EARSHOT_MODEL", raising=False)
    (tmp_path / "infra").symlink_to(ROOT / "infra")
    monkeypatch.chdir(tmp_path)
    (script,) = (one.text for one in read(ROOT / "docs/models.md").blocks() if one.text.startswith("earshot explore"))
    assert_like(invoked(build(), *script.split()[1:]).stdout, shown_after("docs/models.md", "earshot explore"))


def test_train_tag_prints_what_its_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, precision, minutes in (("streams", 0.97, 103.7), ("recordings", 0.99, 107.8)):
        figures = HeldOutFigures(12, 1.0, precision, math.nan, 0, 0.3, minutes)
        train_tag._print(f"Baby_tears in {kind}", LearntTag(np.zeros(1, np.float32), figures, ("crying_baby",)))
    assert shown_after("docs/models.md", "earshot models train-tag").startswith(capsys.readouterr().out)


def test_excluded_blocks_exist() -> None:
    for page, firsts in NOT_RUN.items():
        blocks = [block.text for block in read(ROOT / page).blocks() if block.language in ("sh", "python")]
        for first in firsts:
            assert any(block.startswith(first) for block in blocks), f"{page} has no block that begins with {first}"


def test_output_comparison_allows_ellipses_and_rounding() -> None:
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
