"""A PostgreSQL server of the tests, from the system's package: no Docker, no network."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

#: Database to use instead; the tests drop all of its tables.
NAMED: Final = "EARSHOT_TEST_POSTGRES_URL"
PACKAGE: Final = Path("/usr/lib/postgresql")
#: Durability is off, because no data outlives the tests.
OPTIONS: Final = "-c fsync=off -c full_page_writes=off -c autovacuum=off -c listen_addresses="
START_SECONDS: Final = 120


@contextmanager
def postgres_database() -> Iterator[str]:
    """Yield the URL of a database; skip the test if there is no PostgreSQL."""
    if NAMED in os.environ:
        yield os.environ[NAMED]
        return
    programs = _programs()
    if programs is None:
        pytest.skip(f"PostgreSQL is not installed, and {NAMED} names no database")
    # Not pytest's directory: the path of a Unix socket has about 100 characters, and the server may run as another
    # user.
    directory = Path(tempfile.mkdtemp(prefix="earshot-postgres-"))
    user = _user(directory)
    data = str(directory / "data")
    try:
        _run(user, programs / "initdb", "-D", data, "-A", "trust", "-U", "earshot", "-E", "UTF8", "--no-sync")
        _start(user, programs, directory)
        try:
            yield f"postgresql://earshot@/postgres?host={directory}"
        finally:
            _stop(user, programs, directory)
    finally:
        shutil.rmtree(directory)


@contextmanager
def stopped(database: str) -> Iterator[None]:
    """Stop the server of a `postgres_database` meanwhile; skip the rest of the test if it is not ours."""
    programs, (_, _, found) = _programs(), database.partition("?host=")
    if NAMED in os.environ or programs is None:
        pytest.skip(f"{NAMED} names a server, which others may use")
    directory = Path(found)
    user = directory.owner() if os.getuid() == 0 else None
    _stop(user, programs, directory)
    try:
        yield
    finally:
        _start(user, programs, directory)


def _start(user: str | None, programs: Path, directory: Path) -> None:
    data = directory / "data"
    options = f"-k {directory} {OPTIONS}"
    _run(user, programs / "pg_ctl", "-D", data, "-l", data / "log", "-o", options, "-w", "start")


def _stop(user: str | None, programs: Path, directory: Path) -> None:
    _run(user, programs / "pg_ctl", "-D", directory / "data", "-m", "immediate", "-w", "stop")


def _programs() -> Path | None:
    """Return the directory of the newest installed server's programs, which Debian keeps off the PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = [one.parent for one in PACKAGE.glob("*/bin/initdb")]
    return max(versions, key=lambda one: float(one.parent.name), default=None)


def _user(directory: Path) -> str | None:
    """Return the user that the server runs as, None for the tests' user: it refuses root."""
    if os.getuid() != 0:
        return None
    for user in "postgres", "nobody":
        try:
            shutil.chown(directory, user)
        except LookupError:
            continue
        return user
    pytest.skip("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`")


def _run(user: str | None, *command: str | Path) -> None:
    # A file, not a pipe, because the server inherits it and keeps running.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command, user=user, stdout=output, stderr=subprocess.STDOUT, cwd="/", timeout=START_SECONDS, check=False
        )
        output.seek(0)
        assert done.returncode == 0, output.read().decode()
