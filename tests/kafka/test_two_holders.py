"""A copied data directory: two processes with the name of one node."""

import shutil
from pathlib import Path

import pytest

from tests.kafka.broker import kafka_broker
from tests.process import ServiceProcess, ask
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def last_words(node: ServiceProcess, before: int) -> str:
    """Wait until a process has ended with 1; return what it said."""
    wait_for(lambda: not node.running, 90)
    assert node.process is not None
    assert node.process.poll() == 1, node.tail()
    return node.log.read_text()[before:]


def test_only_one_of_two_holders_of_a_name_runs_and_both_are_named(tmp_path: Path) -> None:
    with kafka_broker() as broker:
        settings: dict[str, str | int] = {
            **broker.settings,
            "partitions": 2,
            "kafka_session_seconds": 6,
            "database_url": f"sqlite:///{tmp_path / 'control.db'}",
            "model": "sed-mini",
            "workers": 1,
        }
        first, copy = (ServiceProcess(tmp_path / name, **settings) for name in ("first", "copy"))
        try:
            first.start()
            shutil.copytree(first.data, copy.data)
            said = last_words(copy.start(wait=0), 0)
            assert f"at {first.url} has the name of this node" in said
            assert "the data directory was copied" in said
            assert ask("GET", f"{first.url}/readyz").status_code == 200
            assert "node.lost" not in first.log.read_text()
            # A clone of the disk cannot be told by its inodes: the newer process goes on.
            node_id = next(copy.data.glob("tables*/node-id"))
            name = node_id.read_text().split()[0]
            place = next(first.data.glob("tables*/node-id")).read_text().split()[1]
            node_id.write_text(f"{name}\n{place} {node_id.parent.stat().st_ino}\n")
            before = len(first.log.read_text())
            copy.start(wait=0)
            assert f"at {copy.url} has the name of this node" in last_words(first, before)
            copy.wait_ready()
            # Its supervisor starts the older one again.
            before = len(first.log.read_text())
            assert f"at {copy.url} has the name of this node" in last_words(first.start(wait=0), before)
            assert ask("GET", f"{copy.url}/readyz").status_code == 200
            assert copy.stop() == 0
            first.start()
        finally:
            first.stop()
            copy.stop()
