"""Fetching and starting with failing programs: nothing is left behind, and the message tells what to do."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka_launcher import jars, services
from tests.kafka_launcher.jars import LauncherError
from tests.kafka_launcher.launcher import KafkaCluster
from tests.kafka_launcher.node import KafkaNode
from tests.ports import free_ports


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


def test_data_of_another_cluster_size_is_rejected(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # Both starts fail on the port; the first has already stored the number of nodes.
        port = taken.getsockname()[1]
        with pytest.raises(LauncherError, match="not free"):
            KafkaCluster(tmp_path, nodes=3, port=port).start()
        with pytest.raises(LauncherError, match="holds a cluster of 3 node"):
            KafkaCluster(tmp_path, nodes=1, port=port).start()


def test_nodes_outlive_one_that_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = {2}
    monkeypatch.setattr(KafkaNode, "running", property(lambda node: node.number not in dead))
    cluster = KafkaCluster(tmp_path, nodes=3, port=None)
    failures = cluster.watch(0)
    assert failures.keys() == {2}
    assert "node 2 stopped" in str(failures[2])
    assert cluster.watch(0) == {}, "it is reported once"
    dead |= {1, 3}
    with pytest.raises(LauncherError, match="node 3 stopped"):
        cluster.watch(0)


def test_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "tests.kafka_launcher", "--data", str(tmp_path), "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"kafka: port {port} is not free: Address already in use")


def test_failed_start_of_services_leaves_none_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "PORT", free_ports(2)[0])
    monkeypatch.setenv("EARSHOT_LANES", "none")
    there = services.Services(tmp_path, 1, "127.0.0.1:1")
    with pytest.raises(LauncherError, match=r"(?s)Earshot node 1 did not start; the end of .*EARSHOT_LANES: must be"):
        there.__enter__()
    assert there.nodes[0].process is None
    with socket.create_server(("127.0.0.1", services.PORT)), pytest.raises(LauncherError, match="is not free"):
        there.__enter__()
