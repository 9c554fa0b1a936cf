"""Fetching and starting with failing programs: nothing is left behind, and the message tells what to do."""

import signal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.kafka_launcher import jars, launcher
from tests.kafka_launcher.__main__ import kafka
from tests.kafka_launcher.jars import LauncherError
from tests.kafka_launcher.launcher import KafkaCluster
from tests.kafka_launcher.node import properties


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jar folder of a user with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "earshot" / f"kafka-{jars.VERSION}"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


MAVEN = r"""
for argument in "$@"; do case $argument in -DoutputDirectory=*) out=${argument#*=} ;; esac; done
mkdir -p "$out" && printf abc > "$out/kafka.jar"
"""


def started(tmp_path: Path) -> KafkaCluster:
    cluster = KafkaCluster(tmp_path / "data", port=None)
    cluster.start()
    return cluster


def test_jars_are_fetched_once(cache: Path, programs: Path) -> None:
    put(programs, "mvn", MAVEN)
    assert jars.jars() == cache
    assert (cache / "kafka.jar").read_text() == "abc"
    put(programs, "mvn", "exit 1")
    assert jars.jars() == cache


def test_failed_fetch_leaves_no_folder(cache: Path, programs: Path) -> None:
    put(programs, "mvn", MAVEN + "echo '[ERROR] no route to the repository'; exit 1")
    with pytest.raises(LauncherError, match=r"could not fetch Kafka's jars: .*no route"):
        jars.jars()
    assert list(cache.parent.iterdir()) == []


def test_missing_programs_are_reported(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LauncherError, match="mvn is not on the PATH"):
        jars.jars()
    with pytest.raises(LauncherError, match="java is not on the PATH"):
        started(tmp_path)


@pytest.mark.parametrize(
    ("java", "failure"),
    [
        ("echo no space left; exit 1", "could not format its data directory; the end of .*no space left"),
        ('case "$*" in *format*) ;; *) echo out of memory; exit 1 ;; esac', "stopped while starting; .*out of memory"),
    ],
    ids=["formatting", "starting"],
)
def test_failed_start_shows_end_of_log(java: str, failure: str, cache: Path, programs: Path, tmp_path: Path) -> None:
    put(programs, "mvn", MAVEN)
    put(programs, "java", java)
    with pytest.raises(LauncherError, match=f"(?s)Kafka node 1 {failure}"):
        started(tmp_path)


@pytest.mark.parametrize(("nodes", "copies", "insync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_replication_follows_node_count(nodes: int, copies: int, insync: int) -> None:
    ports = {n: (9000 + n, 9100 + n) for n in range(1, nodes + 1)}
    settings = dict(line.split("=", 1) for line in properties(1, Path("data"), ports).splitlines())
    assert settings["default.replication.factor"] == settings["offsets.topic.replication.factor"] == str(copies)
    assert settings["min.insync.replicas"] == str(insync)
    assert settings["controller.quorum.voters"].count("@") == nodes


@pytest.mark.parametrize(
    ("options", "directory"),
    [
        ([], "data/kafka"),
        (["--nodes", "1"], "data/kafka"),
        (["--nodes", "3"], "data/kafka-3"),
        (["--nodes", "3", "--data", "mine"], "mine"),
    ],
)
def test_default_directory_depends_on_cluster_size(
    monkeypatch: pytest.MonkeyPatch, options: list[str], directory: str
) -> None:
    class Cluster(launcher.KafkaCluster):
        def start(self) -> None:
            directories.append(self._directory)
            raise KeyboardInterrupt

    directories: list[Path] = []
    monkeypatch.setattr(launcher, "KafkaCluster", Cluster)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    app = typer.Typer()
    app.command()(kafka)
    assert CliRunner().invoke(app, options).exit_code == 0
    assert directories == [Path(directory).absolute()]
