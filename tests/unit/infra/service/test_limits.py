"""A start's checks of the machine: limits, directories; sockets; and the probes' answers."""

import asyncio
import errno
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from structlog.testing import capture_logs

from infra import urls
from infra.db import database as database_module
from infra.db.database import Database
from infra.errors import Unfit, WrongSetting
from infra.service import doors, limits, listener
from infra.service.directories import narrow, prepare
from infra.service.health import ServiceHealth
from infra.service.models import ModelsInUse
from infra.service.nodes import database_error
from infra.service.options import connection_limits, edge_options
from infra.settings import Settings
from infra.transport.connections import Connections
from streams import memory
from streams.node.node import Node
from tests.waiting import until
from topics.errors import DirectoryDown, ServiceError
from topics.ports.health import Reading


def test_connection_limit_reserves_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "descriptors", lambda: 1000)
    assert connection_limits(Settings()).connections == 1000 - 512
    monkeypatch.setattr(listener, "descriptors", lambda: 1_000_000)
    limits = connection_limits(Settings(trusted_proxies=2))
    assert (limits.connections, limits.trusted_proxies) == (16_384, 2)


@pytest.mark.parametrize("switch", ["sessions_need_key", "job_reads_need_key", "dashboard", "docs"])
def test_switches_reach_edge_options(switch: str, tmp_path: Path) -> None:
    for on in (False, True):
        settings = Settings.model_validate({"data": tmp_path, switch: on})
        assert getattr(edge_options(settings, b"s" * 32, frozenset()), switch) is on


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no such option")
def test_kernel_keeps_unread_data_of_closed_connections_for_a_bounded_time() -> None:
    """An answer that fits into the kernel's memory leaves the service at once, whether the client reads it or not."""
    sockets = listener.listen("127.0.0.1", 0)
    with socket.create_connection(sockets[0].getsockname()[:2]):
        served, _ = sockets[0].accept()
        with served:
            kept = served.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    listener.close(sockets)
    assert kept == 1000 * listener.UNREAD_SECONDS


def test_keep_alive_timeout_is_75_seconds() -> None:
    application: Any = object()
    door = Connections(connection_limits(Settings()))
    assert doors._server(application, Settings(), door).config.timeout_keep_alive == 75


def allowed(monkeypatch: pytest.MonkeyPatch, addresses: int = resource.RLIM_INFINITY, threads: int = 1000) -> None:
    """Allow these limits, whatever this machine and other tests leave; count the threads that the check starts."""

    def start(thread: threading.Thread) -> None:
        nonlocal threads
        if not threads:
            raise RuntimeError("can't start new thread")
        threads -= 1
        plain(thread)

    plain = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (addresses, resource.RLIM_INFINITY))
    monkeypatch.setattr(listener, "descriptors", lambda: 1024)


def test_insufficient_limits_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        allowed(patch)
        before = threading.enumerate()
        limits.check(Settings(bundled_engines=False))
        assert {*threading.enumerate()} <= {*before}
        allowed(patch, addresses=1500 << 20)
        with pytest.raises(Unfit, match=r"^1500 MiB of addresses are allowed \(ulimit -v\), at least \d+ are"):
            limits.check(Settings())
    allowed(monkeypatch, threads=9)
    with pytest.raises(Unfit, match=r"^9 more threads are allowed \(ulimit -u.*, 64 are needed$"):
        limits.check(Settings())


@pytest.mark.parametrize(
    ("mib", "settings", "state", "ends"),
    [
        (255, {}, "bad", "at least 256 are needed"),
        (256, {}, "slow", "these settings may use 1280; EARSHOT_BUNDLED_ENGINES=false saves 832"),
        (
            1300,
            {"lanes": 3},
            "slow",
            "1480; EARSHOT_BUNDLED_ENGINES=false saves 832; EARSHOT_LANES=1 saves 200",
        ),
        (447, {"bundled_engines": False}, "slow", "these settings may use 448"),
        (448, {"bundled_engines": False}, "", ""),
        (1280, {}, "", ""),
    ],
)
def test_memory_that_is_too_small_is_told_with_the_need(
    monkeypatch: pytest.MonkeyPatch, mib: int, settings: dict[str, Any], state: str, ends: str
) -> None:
    monkeypatch.setattr(memory, "allowed", lambda: mib << 20)
    found = list(limits.memory_findings(Settings(**{"lanes": 1, **settings})))
    assert [(one, text.startswith(f"{mib} MiB of memory"), text.endswith(ends)) for one, text in found] == [
        (state, True, True)
    ] * bool(state)
    allowed(monkeypatch)
    with capture_logs() as logs:
        if state == "bad":
            with pytest.raises(Unfit, match="of memory are allowed"):
                limits.check(Settings())
        else:
            limits.check(Settings(**{"lanes": 1, **settings}))
    assert [line["event"] for line in logs] == ["memory.tight"] * (state == "slow")


def test_directory_of_another_user_is_told_with_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    fault = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    monkeypatch.setattr(tempfile, "TemporaryFile", mock.Mock(side_effect=fault))
    whose = f"Permission denied (its owner is user {os.getuid()}, this is user 12345)"
    with pytest.raises(WrongSetting) as told:
        prepare(Settings(data=tmp_path))
    assert str(told.value) == f"EARSHOT_DATA: {tmp_path} cannot be written: {whose}"


def test_low_port_without_the_right_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    monkeypatch.setattr(socket, "create_server", mock.Mock(side_effect=fault))
    with pytest.raises(WrongSetting, match=r"^EARSHOT_PORT: port 80 of .*: Permission denied; .*CAP_NET_BIND_SERVICE$"):
        listener.listen("127.0.0.1", 80)


def test_start_tightens_only_its_own_permissions(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    ours = [data / "tables", data / "uploads", elsewhere / "log", tmp_path / "e.db", tmp_path / "e.db-wal"]
    theirs = [data, elsewhere, data / "notes", tmp_path / "other.db", tmp_path / "target"]
    for path in [*ours, *theirs]:
        path.parent.mkdir(exist_ok=True)
        path.touch() if ".db" in path.name else path.mkdir(exist_ok=True)
        path.chmod(0o755)
    (data / "engines").symlink_to(tmp_path / "target")
    database = urls.database_url(f"sqlite:///{tmp_path}/e.db")
    for _ in range(2):
        narrow(Settings(data=data, broker=f"embedded://{elsewhere}", database_url=database))
    assert {mode(path) for path in ours} == {0o700}
    assert {mode(path) for path in theirs} == {0o755}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_own_directories_are_created_and_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        broker, voices = f"embedded://{tmp_path}/log", f"file://{tmp_path}/voices/here"
        prepare(Settings(data=tmp_path / "a" / "data", broker=broker, voices_url=voices))
    finally:
        os.umask(before)
    assert {mode(tmp_path / name) for name in ("a/data", "log")} == {0o700}
    assert {path.name for path in tmp_path.iterdir()} == {"a", "log"}


@pytest.mark.parametrize(
    "name",
    ["log/log/000004.log", "tables/partitions/0.db", "models/current", "earshot.db-wal", "voices/project/speaker/1"],
)
def test_inaccessible_file_is_reported(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def access(path: Path, rights: int) -> bool:
        return path != file and plain(path, rights)

    plain, file = os.access, tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    prepare(Settings(data=tmp_path))
    monkeypatch.setattr(os, "access", access)
    with pytest.raises(ServiceError, match=f"^{file} is not for this user: "):
        prepare(Settings(data=tmp_path))


def test_file_in_place_of_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "uploads").touch()
    with pytest.raises(ServiceError, match=f"^{tmp_path}/uploads is not a directory"):
        prepare(Settings(data=tmp_path))


def health_of(database: Database, directory: Path, kept_free: int = 0, fault: str | None = None) -> ServiceHealth:
    node = mock.Mock(spec=Node)
    node.notes.side_effect = lambda: ["a table was rebuilt"]
    node.readings.return_value = [Reading("earshot_windows_total", "", 3)]
    node.ready.return_value = node.alive.return_value = None
    models = mock.Mock(spec=ModelsInUse, fault=fault)
    connections = mock.MagicMock(spec=Connections, lanes=None, loop_delay=0.0)
    return ServiceHealth(node, database, models, directory, kept_free, connections)


def gauge(health: ServiceHealth, name: str) -> float:
    return {one.name: one.value for one in health.readings()}[name]


async def test_failing_database_is_noted_until_it_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}")
    health = health_of(database, tmp_path)
    await database.migrate()
    assert (health.notes(), gauge(health, "earshot_database_failing")) == (["a table was rebuilt"], 0)
    (tmp_path / "earshot.db").rename(tmp_path / "away")
    await database.close()
    (tmp_path / "earshot.db").mkdir()
    with pytest.raises(DirectoryDown):
        await database.revision()
    assert (health.ready(), health.alive()) == (None, None)
    assert health.notes() == ["a table was rebuilt", "the database fails"]
    assert (database_error(database) or "").endswith(f": {tmp_path / 'earshot.db'}")
    assert (gauge(health, "earshot_database_failing"), gauge(health, "earshot_windows_total")) == (1, 3)
    (tmp_path / "earshot.db").rmdir()
    (tmp_path / "away").rename(tmp_path / "earshot.db")
    monkeypatch.setattr(database_module, "TRY_SECONDS", 0.001)
    trying = asyncio.create_task(database.keep_trying())
    await until(lambda: health.notes() == ["a table was rebuilt"])
    trying.cancel()
    assert database_error(database) is None
    await database.close()


async def test_upload_disk_without_room_and_damaged_model_are_noted(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}")
    assert gauge(health_of(database, tmp_path), "earshot_upload_room_bytes") > 0
    full = health_of(database, tmp_path, kept_free=1 << 62)
    assert full.notes()[1:] == ["uploads are refused: the disk is nearly full"]
    deaf = health_of(database, tmp_path, fault="model.onnx: damaged")
    assert deaf.notes()[1:] == ["another sound model stands in for the one that cannot be used"]
    removed = health_of(database, tmp_path / "removed")
    assert removed.notes()[1:] == ["uploads are refused: their directory is missing"]
    assert [gauge(health, "earshot_upload_room_bytes") for health in (full, removed)] == [0, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have only the limit")
def test_service_leaves_no_memory_in_core_dumps() -> None:
    """Neither in a file nor at a handler, and nor do its children, which may raise no limit."""
    child = "subprocess.run(['cat', '/proc/self/limits', '/proc/self/coredump_filter'])"
    program = f"""if True:
        import subprocess
        from infra.service.process import run_process
        from infra.settings import Settings
        async def main(): {child}
        run_process(Settings(), main)
    """
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60).stdout
    (line,) = [line.split() for line in said.splitlines() if line.startswith("Max core file size")]
    assert line[4:6] == ["0", "0"]
    assert int(said.split()[-1], 16) == 0


def test_system_without_shared_ports_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = listener.listen("127.0.0.1", 0)
    monkeypatch.setattr(socket, "SO_REUSEPORT", 9999)
    with pytest.raises(WrongSetting, match=r"SO_REUSEPORT: Protocol not available"):
        listener.hold(sockets)
    assert [one.fileno() for one in sockets] == [-1]
