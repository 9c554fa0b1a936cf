"""A start as a user sees it: one line per error, keys shown once, and a report of how the previous run ended."""

import asyncio
import errno
import faulthandler
import gc
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final
from unittest import mock

import httpx2
import pytest
from numba.core.caching import _CacheLocator

from infra.db import intact, keyring
from infra.scratch import BESIDE, KERNELS
from infra.service import lives, service
from infra.service.lives import CRASH, LIVES, MOST_KILLED, begin_life
from infra.service.node_name import DirectoryName
from infra.service.service import EarshotService
from infra.settings import Settings
from streams import memory
from streams.audio import kernels
from streams.embedded.lock import DirectoryLock
from streams.folding.lives import Lives
from streams.processes.zygote_process import Zygote
from streams.workers import COMMAND
from tests.forked import Forked
from tests.ports import free_port
from tests.process import ask, terminal
from tests.waiting import wait_for
from topics.errors import EngineError, Unavailable
from topics.keys import is_id

KEY = re.compile(r"shown this once.*?(es[po]_\w+)")


#: Starts the command as everywhere; without it, it forks from a process that has imported everything.
COLD: Final = ("env",)


class Served(Forked):
    """`earshot serve` with pipes to this process; standard output may be a terminal."""

    def __init__(self, environment: Mapping[str, str], pipes: Path, screen: int) -> None:
        out, err = pipes / "stdout", pipes / "stderr"
        for pipe in (out, err):
            os.mkfifo(pipe)
        shown = screen != subprocess.PIPE
        super().__init__(["serve"], environment, Path(os.ttyname(screen)) if shown else out, err, umask=0)
        self.stdout = None if shown else out.open()
        self.stderr = err.open()

    def communicate(self, timeout: float) -> tuple[str, str]:
        said = self.stdout.read() if self.stdout else "", self.stderr.read()
        self.wait(timeout)
        return said

    def close(self) -> None:
        for pipe in filter(None, (self.stdout, self.stderr)):
            pipe.close()
        self.wait(60)


@contextmanager
def serving(
    data: Path, stdout: int = subprocess.PIPE, shell: Sequence[str] = (), /, **settings: str | int
) -> Iterator[subprocess.Popen[str] | Served]:
    """Run `earshot serve`, perhaps by a shell, and stop it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EARSHOT_")}
    chosen = {f"EARSHOT_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {
        **clean,
        "EARSHOT_DATA": str(data),
        "EARSHOT_BUNDLED_ENGINES": "0",
        "EARSHOT_PORT": "0",
        "EARSHOT_LANES": "1",
        **chosen,
    }
    process: subprocess.Popen[str] | Served
    with ExitStack() as stack:
        if shell:
            command = [*shell, sys.executable, "-m", "infra.cli", "serve"]
            process = subprocess.Popen(
                command, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, umask=0
            )
            stack.enter_context(process)
        else:
            process = Served(environment, Path(mkdtemp(dir=data.parent)), stdout)
            stack.callback(process.close)
        stack.callback(process.terminate)
        yield process


def ended(data: Path, **settings: str | int) -> tuple[int, str, list[str]]:
    """Return the exit status, stdout, and the non-log lines of stderr of a start that fails by itself."""
    with serving(data, **settings) as process:
        out, err = process.communicate(timeout=120)
        return process.wait(60), out, [line for line in err.splitlines() if not line.startswith("{")]


@pytest.mark.slow
def test_service_process_does_not_import_worker_libraries() -> None:
    """It would take memory twice, and delay the start."""
    heavy = "{'numba', 'llvmlite', 'onnxruntime', 'scipy', 'av'}"
    program = f"import sys, infra.service.service; print(*{heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "\n"


#: Runs a command where only the directory before it can be written.
READ_ONLY: Final = (
    "data=$1; shift; mount --make-rprivate / && mount --bind $data $data && cd / || exit 77;"
    "for place in / /tmp /var/tmp /dev/shm $HOME; do mountpoint -q $place && mount -o remount,ro,bind $place; done;"
    'exec "$@"'
)


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run(["unshare", "-m", "mount", "--make-rprivate", "/"], capture_output=True).returncode != 0,
    reason="this user may not make a mount namespace",
)
def test_service_runs_on_read_only_root(tmp_path: Path) -> None:
    port, data, image = free_port(), tmp_path / "data", tmp_path / "image"
    data.mkdir()
    # The kernels come along, as those of an image, except one that it compiles.
    there = image / _CacheLocator.get_suitable_cache_subpath(kernels.__file__)  # type: ignore[no-untyped-call]
    shutil.copytree(BESIDE, there, ignore=shutil.ignore_patterns("[!k]*", "kernels.mix-*"))
    shell = ("env", f"{KERNELS}={image}", "unshare", "-m", "sh", "-c", READ_ONLY, "sh", str(data))
    with serving(data, subprocess.DEVNULL, shell, port=port) as process:
        wait_for(lambda: process.poll() is not None or is_ready(port), 120)
        assert process.poll() is None, process.communicate(timeout=60)
    assert any((data / "cache" / "kernels" / there.name).glob("kernels.mix-*.nbc"))
    assert (data / "cache" / "tmp").is_dir()
    assert (data / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_service_runs_without_standard_streams(tmp_path: Path) -> None:
    port = free_port()
    with serving(
        tmp_path / "data", subprocess.PIPE, ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"), port=port
    ) as process:
        wait_for(lambda: process.poll() is not None or is_ready(port), 120)
        process.terminate()
        assert process.wait(60) == 0


def is_ready(port: int) -> bool:
    with suppress(httpx2.TransportError):
        return ask("GET", f"http://127.0.0.1:{port}/readyz").status_code == 200
    return False


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2])
def test_taken_port_is_one_line(tmp_path: Path, lanes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = f"earshot: EARSHOT_PORT: port {port} of 127.0.0.1 is taken by another program"
        assert ended(tmp_path / "data", port=port, lanes=lanes) == (1, "", [line])


@pytest.mark.slow
def test_missing_port_of_a_lane_is_one_line(tmp_path: Path) -> None:
    port = free_port(2)
    lanes: dict[str, str | int] = {"lanes": 2, "broker": "kafka://127.0.0.1:1"}
    needed = "on Kafka, 2 lanes need the 2 ports after"
    with socket.create_server(("127.0.0.1", port + 2)):
        taken = f"earshot: EARSHOT_PORT: port {port + 2} of 127.0.0.1 is taken by another program; {needed} {port} too"
        assert ended(tmp_path / "data", port=port, **lanes) == (1, "", [taken])
    too_high = f"earshot: EARSHOT_PORT: {needed} 65534 too"
    assert ended(tmp_path / "data", port=65534, **lanes) == (2, "", [too_high])


@pytest.mark.slow
@pytest.mark.parametrize(("broker", "held"), [("embedded://", "log"), ("kafka://127.0.0.1:1", "tables-kafka")])
def test_data_directory_in_use_is_not_touched(tmp_path: Path, broker: str, held: str) -> None:
    data = tmp_path / "data"
    lock = DirectoryLock(data / held)
    line = f"earshot: the data directory {data / held} is in use by process {os.getpid()}"
    assert ended(data, broker=broker) == (1, "", [line])
    lock.release()
    assert not (data / "earshot.db").exists(), "a newer version would have migrated it"


@pytest.mark.slow
def test_low_open_file_limit_is_one_line(tmp_path: Path) -> None:
    with serving(tmp_path / "data", subprocess.PIPE, ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err.splitlines()[-1] == "earshot: 256 open files are allowed (ulimit -n), at least 576 are needed"


@pytest.mark.slow
def test_service_stops_while_nobody_reads_its_log_and_misses_its_data_afterwards(tmp_path: Path) -> None:
    data, kept = tmp_path / "data", tmp_path / "kept"
    with serving(data) as process:
        welcome(process)
        full = os.open(f"/proc/{process.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while os.write(full, b"x"):
                pass
        os.close(full)
        process.terminate()
        assert process.wait(60) == 0
    assert not list(data.glob("earshot.db-*"))
    for lost in ("earshot.db", "log/log"):
        (data / lost).rename(kept)
        status, out, (line,) = ended(data)
        assert (status, out) == (1, "")
        assert re.search(f"{data / lost}.* is missing, although there was one", line)
        assert not (data / lost).exists()
        kept.rename(data / lost)


@pytest.mark.slow
def test_first_successful_start_shows_keys(tmp_path: Path) -> None:
    data = tmp_path / "data"
    status, out, (line,) = ended(data, broker=f"kafka://127.0.0.1:{free_port()}")
    assert (status, out) == (1, "")
    assert line.startswith("earshot: EARSHOT_BROKER: Kafka at 127.0.0.1:")
    with welcomed(data) as said:
        keys = KEY.findall(said)
        # If it ends before it has noted that they were seen, the next one shows other keys.
        wait_for(lambda: unseen(data) == 0)
    assert [key[:4] for key in keys] == ["esp_", "eso_"]
    assert "/dashboard/#/welcome/link_" in said
    with welcomed(data) as said:
        assert KEY.findall(said) == []
        open_to_others = [path for path in (data, *data.rglob("*")) if is_open_to_others(path)]
        assert not open_to_others, "whatever the umask was"


@pytest.mark.slow
def test_output_without_terminal_contains_no_secret(tmp_path: Path) -> None:
    """Neither keys nor links are written to a non-terminal; the next start at a terminal shows the keys."""
    data = tmp_path / "data"
    with serving(data) as process:
        said = welcome(process)
    assert not re.search(r"es[po]_\w|/welcome/|link_", said)
    assert "earshot key rotate demo" in said
    assert "earshot link" in said
    assert unseen(data) == 0, "no key was made that nobody saw"
    with welcomed(data) as said:
        assert [key[:4] for key in KEY.findall(said)] == ["esp_", "eso_"]


@pytest.mark.slow
def test_chosen_key_without_effect_is_not_offered_for_pasting(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data, bootstrap_project_key="the first key of the project") as process:
        assert 'EARSHOT_PROJECT_KEY="$EARSHOT_BOOTSTRAP_PROJECT_KEY"' in welcome(process)
    with serving(data, bootstrap_project_key="a later key of the project", dashboard="false") as process:
        said = welcome(process)
    assert "`earshot org rotate-key demo` makes one" in said
    assert "`earshot key rotate demo`" not in said, "the project has a key"
    assert "dashboard" not in said
    assert "EARSHOT_BOOTSTRAP_PROJECT_KEY is ignored: the demo project already has another key, or this" in said
    assert "EARSHOT_PROJECT_KEY=YOUR_PROJECT_KEY" in said
    assert "The demo project's key is" not in said


@pytest.mark.slow
@pytest.mark.parametrize("hangup", [signal.SIG_DFL, signal.SIG_IGN])
def test_hangup_stops_service_unless_ignored(tmp_path: Path, hangup: signal.Handlers) -> None:
    """Unless it was started to outlive its terminal, as by nohup."""
    before = signal.signal(signal.SIGHUP, hangup)
    try:
        port = free_port()
        # What forks does not inherit this.
        with serving(tmp_path / "data", subprocess.PIPE, COLD, log_format="json", port=port) as process:
            welcome(process)
            process.send_signal(signal.SIGHUP)
            if hangup is signal.SIG_IGN:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(1)
                assert ask("GET", f"http://127.0.0.1:{port}/healthz").status_code == 200
                process.terminate()
            _, err = process.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 0
    assert '"service.stopped"' in err


@pytest.mark.slow
def test_failed_background_task_stops_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service, "keep_noting", broken)
    settings = Settings(data=tmp_path / "data", port=0, bundled_engines=False)
    run = EarshotService(settings, Zygote(COMMAND)).run(mock.AsyncMock())
    assert asyncio.run(asyncio.wait_for(run, 60)) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.slow
def test_signal_ends_database_check_and_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is written to a database that was not checked to its end."""

    def check(file: Path, changes: int, begun: bool, stopped: Callable[[], bool]) -> None:
        started.stopping.set()
        assert stopped()

    monkeypatch.setattr(intact, "check", check)
    started = EarshotService(Settings(data=tmp_path / "data", port=0, bundled_engines=False), Zygote(COMMAND))
    assert asyncio.run(started.run(mock.AsyncMock())) == 0
    assert not (tmp_path / "data" / "earshot.db").exists()


async def test_start_on_full_disk_logs_no_second_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Database and model may both fail; the error of the database is the one to report."""

    async def open_database(*_: object) -> None:
        raise Unavailable("the disk under the database is full")

    def open_model(_: object) -> None:
        raise EngineError("No space left on device")

    monkeypatch.setattr(EarshotService, "_open_database", open_database)
    monkeypatch.setattr(EarshotService, "_open_model", open_model)
    reported = mock.Mock()
    asyncio.get_running_loop().set_exception_handler(reported)
    started = EarshotService(Settings(data=tmp_path / "data", port=0, bundled_engines=False), mock.Mock(spec=Zygote))
    with pytest.raises(Unavailable, match="the disk under the database is full"):
        await started.run(mock.AsyncMock())
    gc.collect()
    assert not reported.called


@pytest.mark.parametrize(("host", "url"), [("::", "http://[::]:8000"), ("10.0.0.1", "http://10.0.0.1:8000")])
def test_other_nodes_can_read_the_address(host: str, url: str, tmp_path: Path) -> None:
    doors = EarshotService(Settings(data=tmp_path, host=host), mock.Mock(spec=Zygote)).doors
    doors._sockets = [mock.Mock(getsockname=lambda: (host, 8000))]
    assert doors.node_url == url


def is_open_to_others(path: Path) -> bool:
    """Return whether other users have rights to a file, which a running service may have deleted meanwhile."""
    with suppress(FileNotFoundError):
        return bool(path.lstat().st_mode & 0o077)
    return False


def unseen(data: Path) -> int:
    """Count the keys that were never shown."""
    with closing(sqlite3.connect(data / "earshot.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM keys WHERE shown = ?", [keyring.UNSEEN]).fetchone()
    return int(count)


END: Final = "A whole recording as a job"


@contextmanager
def welcomed(data: Path) -> Iterator[str]:
    """Run `earshot serve` at a terminal; yield its welcome."""
    log = data.parent / "terminal.log"
    log.write_text("")
    with terminal(log) as screen, serving(data, screen):
        wait_for(lambda: END in log.read_text(), 120)
        yield log.read_text()


def welcome(process: subprocess.Popen[str] | Served) -> str:
    """Return the welcome written to a pipe."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if END in line:
            return "".join(lines)
    raise AssertionError(process.communicate(timeout=60)[1])


def test_name_of_node_is_kept_after_failed_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            DirectoryName(tmp_path)
    assert not (tmp_path / "node-id").exists()
    (tmp_path / "node-id").touch()  # Left by an earlier version.
    name = DirectoryName(tmp_path).name
    assert len(name) > 10
    assert DirectoryName(tmp_path).name == name
    (tmp_path / "node-id").write_text(f"{name}\n")  # As an editor saves it.
    assert DirectoryName(tmp_path).name == name
    for damaged in name[:12].encode(), b"\xff" * 24:
        (tmp_path / "node-id").write_bytes(damaged)
        assert is_id(DirectoryName(tmp_path).name)


def test_copied_directory_has_the_name_but_knows_that_it_is_a_copy(tmp_path: Path) -> None:
    one, copy = tmp_path / "one", tmp_path / "copy"
    one.mkdir()
    first = DirectoryName(one)
    assert not first.is_copy
    assert not DirectoryName(one).is_copy
    shutil.copytree(one, copy)
    copied = DirectoryName(copy)
    assert (copied.name, copied.is_copy) == (first.name, True)
    copied.keep()
    assert not DirectoryName(copy).is_copy
    assert not DirectoryName(one).is_copy
    first.give_up()
    assert DirectoryName(one).is_copy, "the next start waits until the other process has gone"
    assert DirectoryName(one).name == first.name


LIFE = """
import ctypes, sys, time
from pathlib import Path
from infra.service.lives import begin_life
from streams import memory

memory.ended_for_it = lambda: 0
with begin_life(Path(sys.argv[1])) as life:
    print("life", life.this, flush=True)
    sys.stdin.read()
    ctypes.string_at(0)
"""


def live(data: Path, ended_by: signal.Signals) -> str:
    """Start a run in a separate process, and end it; return its name."""
    command = [sys.executable, "-c", LIFE, str(data)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        # Lines about the previous run may come first.
        life = next(line.split()[1] for line in child.stdout if line.startswith("life "))
        if ended_by is signal.SIGSEGV:
            child.communicate()
        else:
            child.send_signal(ended_by)
    assert child.returncode == -ended_by
    return life


def known(data: Path) -> Lives:
    with begin_life(data) as begun:
        return begun


@pytest.fixture(autouse=True)
def traced() -> object:
    """Restore crash tracing; a process has one handler."""
    yield
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts the processes that memory ended on the whole machine, others' too."""
    monkeypatch.setattr(memory, "ended_for_it", lambda: 0)


@pytest.mark.usefixtures("roomy")
def test_killed_runs_are_distinguished_from_crashes(tmp_path: Path) -> None:
    assert known(tmp_path).killed == frozenset()
    ends = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT)
    killed, crashed, ended, aborted = (live(tmp_path, end) for end in ends)
    begun = known(tmp_path)
    assert begun.killed >= {killed, ended}
    assert not begun.killed & {crashed, aborted, begun.this}
    assert begun.was_killed(f"{killed}0123")
    assert not begun.was_killed(f"{crashed}0123")
    assert not begun.was_killed("r-1")
    assert begun.name_run().startswith(begun.this)
    assert begun.name_run() != begun.name_run()


def test_crash_trace_is_logged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live(tmp_path, signal.SIGSEGV)
    known(tmp_path)
    assert "service.crashed" in (told := capsys.readouterr().out)
    assert "Segmentation fault" in told
    known(tmp_path)
    assert "service.crashed" not in capsys.readouterr().out


@pytest.mark.usefixtures("roomy")
def test_out_of_memory_kill_counts_as_crash_unless_rebooted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = known(tmp_path).this
    monkeypatch.setattr(memory, "ended_for_it", lambda: 10**9)
    second = known(tmp_path)
    assert first not in second.killed
    monkeypatch.setattr(memory, "ended_for_it", lambda: 0)
    monkeypatch.setattr(lives, "_boot", lambda: "another")
    assert known(tmp_path).killed == {second.this}


def test_boot_id_and_oom_kills_are_readable() -> None:
    if not Path("/proc/vmstat").exists():
        pytest.skip("not Linux")
    assert lives._boot() == lives._boot() != ""
    assert memory.ended_for_it() >= 0


@pytest.mark.parametrize("damage", [b"", b"{", b'{"life": 3}', None])
def test_damaged_or_unwritable_run_files_do_not_block_start(tmp_path: Path, damage: bytes | None) -> None:
    known(tmp_path)
    (tmp_path / LIVES).unlink()
    (tmp_path / LIVES).mkdir() if damage is None else (tmp_path / LIVES).write_bytes(damage)
    assert known(tmp_path).killed == frozenset()
    (tmp_path / CRASH).unlink()
    assert known(tmp_path).killed == frozenset()


@pytest.mark.usefixtures("roomy")
def test_remembered_runs_are_bounded(tmp_path: Path) -> None:
    names = [known(tmp_path).this for _ in range(MOST_KILLED + 3)]
    assert known(tmp_path).killed == set(names[-MOST_KILLED:])
    assert (tmp_path / LIVES).stat().st_size < os.sysconf("SC_PAGE_SIZE")
