"""The alerts: by Prometheus' own tests, by the metrics that a service has, and by a Prometheus that watches services.

There each alert's fault is made, the alert fires, and it clears once the fault is over.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import TopicPartition

from tests.cluster.nodes import PARTITIONS, Settings, service_nodes, start_again
from tests.conftest import ROOT
from tests.contract.speech import spoken
from tests.deploy import faults
from tests.deploy.watcher import RULES, Watcher
from tests.disks import Disk, mounted
from tests.kafka import group
from tests.kafka.broker import admin_client, launched_kafka
from tests.kafka.records import spoil
from tests.kafka_launcher.launcher import KafkaCluster
from tests.lanes.machine import lane_processes
from tests.process import ServiceProcess, ask
from tests.recovery.load import Client
from tests.stub_engines import SPEECH, StubEngines
from tests.waiting import wait_for
from topics.catalog import COMMANDS

#: Alerts whose faults each service has here.
FAULTS: Final[Mapping[str, Collection[str]]] = {
    "alone": (
        *("EarshotDown", "EarshotRestarts", "EarshotFallsBehind", "EarshotJobsWait", "EarshotRefuses", "EarshotFails"),
        *("EarshotRecordsMayBeLost", "EarshotTableDamaged", "EarshotWorkersDie", "EarshotWorkersBusy"),
        *("EarshotEngineFails", "EarshotDatabaseFails", "EarshotDiskFills", "EarshotLoopStands"),
        *("EarshotFilesRunOut", "EarshotKeysGuessed"),
    ),
    "lanes": ("EarshotLaneAway",),
    "cluster": (
        *("EarshotPartitionStopped", "EarshotPartitionNotServed", "EarshotRecordsSetAside", "EarshotRecordsRemoved"),
        *("EarshotBrokerAway", "EarshotRemovedAlive", "EarshotPartitionsMove"),
    ),
}
#: Alerts that do not fire here, and why.
NOT_HERE: Final = {
    "EarshotAlarmsFail": "it needs a quarter of an hour of alarms; tests/recovery has a receiver that fails",
    "EarshotStandbyBehind": "ten thousand records that a stand-by lacks take minutes of load",
}
DASHBOARD: Final = ROOT / "infra/deploy/grafana.json"
#: Of an idle node.
MOST_SERIES: Final = 600
#: More records than a partition sets aside.
GARBAGE: Final = 41
#: Megabytes of the disk of the service that is alone.
LARGE_MB: Final = 8192
SMALL_MB: Final = 100

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")), reason="there is no Prometheus here"
)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(
        tmp_path_factory.mktemp("service") / "data", model="sed-mini", workers=1, speech_url="http://127.0.0.1:1"
    ) as process:
        yield process


@needs_prometheus
def test_each_alert_fires_and_clears() -> None:
    told = subprocess.run(
        ["promtool", "test", "rules", RULES.with_suffix(".test.yaml")], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stdout + told.stderr
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert alerts == set(re.findall(r"alertname: (\w+)", RULES.with_suffix(".test.yaml").read_text()))


@needs_prometheus
def test_configuration_of_prometheus_is_valid() -> None:
    told = subprocess.run(
        ["promtool", "check", "config", RULES.with_name("prometheus.yaml")], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_each_alert_has_its_section() -> None:
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    assert alerts == re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    assert [name.lower() for name in alerts] == re.findall(
        r"runbook_url: docs/runbook.md#(\w+)$", RULES.read_text(), re.M
    )


def test_each_alert_fires_by_its_fault_or_is_excused() -> None:
    alerts = [alert for alerts in (*FAULTS.values(), NOT_HERE) for alert in alerts]
    assert sorted(alerts) == sorted(re.findall(r"alert: (\w+)", RULES.read_text()))


@pytest.mark.slow
def test_each_metric_of_alerts_and_dashboard_exists(watched: ServiceProcess) -> None:
    text = ask("GET", f"{watched.url}/metrics").text
    shown = re.findall(r"^(\w+)[ {]", text, re.MULTILINE)
    assert len(shown) <= MOST_SERIES
    for file in (RULES, DASHBOARD):
        named = set(re.findall(r"\b((?:earshot|process)_\w+)\b", file.read_text()))
        assert named - {"earshot_request_seconds_bucket"} <= set(shown), file
    if shutil.which("promtool"):
        told = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert (told.returncode, told.stdout + told.stderr) == (0, "")


# --- a Prometheus that watches services ------------------------------------------------------------------------------


def _alone(service: ServiceProcess, disk: Disk, engines: StubEngines, watcher: Watcher) -> None:
    """Make the faults of a service alone: first those whose alerts last for an hour."""
    service.start()
    watcher.wait_watched("alone")
    with faults.dying_workers(service):
        watcher.wait("alone", "EarshotWorkersDie")
    service.pause()
    time.sleep(3)
    service.resume()
    watcher.wait("alone", "EarshotLoopStands")
    watcher.wait_clear("alone", "EarshotDown")
    log, older = service.data / "log", service.data.parent / "older"
    service.kill()
    watcher.wait("alone", "EarshotDown")
    shutil.copytree(log, older)
    service.start()
    watcher.wait_watched("alone")
    asyncio.run(_send_job(service))
    service.stop()
    # A disk that has lost writes: those of the log, and what is noted beside it.
    shutil.rmtree(log)
    older.rename(log)
    (service.data / "tables/marks").unlink()
    service.start()
    watcher.wait("alone", "EarshotRecordsMayBeLost", "EarshotTableDamaged")
    for _ in range(2):
        service.stop()
        service.start()
        watcher.wait_watched("alone")
    watcher.wait("alone", "EarshotRestarts")
    for aside in service.data.glob("tables/partitions/*.damaged-*"):
        shutil.rmtree(aside)
    with faults.slow_workers(service), faults.endless_audio(service):
        engines.faults[SPEECH] = 500
        asyncio.run(_send_job(service))
        watcher.wait("alone", "EarshotEngineFails")
        engines.faults[SPEECH] = "hang"
        for _ in range(3):
            asyncio.run(_send_job(service))
        with faults.connections(service, 200):
            watcher.wait("alone", "EarshotFilesRunOut")
        with faults.guessed_keys(service):
            watcher.wait("alone", "EarshotKeysGuessed")
        with faults.without_keys(service.data / "earshot.db"), faults.jobs(service, None):
            watcher.wait("alone", "EarshotDatabaseFails", "EarshotFails")
        disk.resize(SMALL_MB)
        with faults.jobs(service, service.key):
            watcher.wait("alone", "EarshotDiskFills", "EarshotRefuses")
        disk.resize(LARGE_MB)
        watcher.wait("alone", "EarshotFallsBehind", "EarshotWorkersBusy", "EarshotJobsWait")
    engines.heal()


async def _send_job(service: ServiceProcess) -> None:
    async with Client(service) as client:
        await client.job(spoken(2), {"speech_analysis": True})


def _lanes(machine: ServiceProcess, watcher: Watcher) -> None:
    machine.start()
    watcher.wait_watched("lanes")

    def kill() -> None:
        for lane in lane_processes(machine)[1:]:
            lane.kill()

    with faults.repeated(kill, pause=0.5):
        watcher.wait("lanes", "EarshotLaneAway")


def _cluster(cluster: KafkaCluster, one: ServiceProcess, two: ServiceProcess, watcher: Watcher) -> None:
    """Make the faults of nodes on Kafka."""
    one.start()
    one.stop()
    # Retention takes what no node has read.
    asyncio.run(_remove(cluster.bootstrap))
    # One after another: on SQLite, two that start have five seconds for each other.
    one.start()
    start_again([one, two])
    for name in "one", "two":
        watcher.wait_watched(name)
    watcher.wait_any("EarshotRecordsRemoved")
    # A faulty tool writes to a topic.
    asyncio.run(spoil(cluster.bootstrap, COMMANDS, 0, GARBAGE))
    owner = watcher.wait_any("EarshotPartitionStopped")
    watcher.wait(owner, "EarshotRecordsSetAside", "EarshotPartitionNotServed")
    one.command("partitions", "skip", "0", "--yes")

    def move() -> bool:
        """Remove a living node, as another one does that takes it for dead."""
        name, members = group.members(cluster.bootstrap)
        for member in members[:1]:  # There is none while all join again.
            asyncio.run(group.remove(cluster.bootstrap, name, member))
        return "EarshotPartitionsMove" in {alert for alert, _ in watcher.alerts()}

    wait_for(move, 120)
    watcher.wait_any("EarshotRemovedAlive")
    start_again([one, two])  # A node that has no partitions yet says nothing of the broker.
    broker = cluster.processes[1]
    assert broker is not None
    os.kill(broker, signal.SIGSTOP)
    try:
        for name in "one", "two":
            watcher.wait(name, "EarshotBrokerAway")
    finally:
        os.kill(broker, signal.SIGCONT)


async def _remove(bootstrap: str) -> None:
    await spoil(bootstrap, COMMANDS, 0, GARBAGE)
    async with admin_client(bootstrap) as admin:
        await admin.delete_records({TopicPartition(COMMANDS, 0): RecordsToDelete(-1)})


@needs_prometheus
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_prometheus_finds_each_fault_of_services_and_its_end(tmp_path: Path) -> None:
    """Each alert fires once its fault is made, and none is left after all faults are mended."""
    with (
        mounted(tmp_path / "alone", LARGE_MB) as disk,
        StubEngines() as engines,
        launched_kafka() as cluster,
        service_nodes(tmp_path, {}, {}, cluster=cluster) as (one, two),
        ExitStack() as stack,
        ThreadPoolExecutor() as threads,
    ):
        if disk is None:
            pytest.skip("no right to mount a small file system")
        small: Settings = {"model": "sed-mini", "workers": 1}
        alone = ServiceProcess(disk.path / "data", **small, speech_url=engines.url, speech_concurrency=1)
        machine = ServiceProcess(tmp_path / "lanes", **small, lanes=2, partitions=PARTITIONS)
        services = {"alone": alone, "lanes": machine, "one": one, "two": two}
        for service in services.values():
            stack.callback(service.stop)
            stack.callback(service.resume)
        watcher = stack.enter_context(Watcher(tmp_path, {name: service.port for name, service in services.items()}))
        scenes = [
            threads.submit(_alone, alone, disk, engines, watcher),
            threads.submit(_lanes, machine, watcher),
            threads.submit(_cluster, cluster, one, two, watcher),
        ]
        for scene in scenes:
            scene.result()
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            for target in panel["targets"]:
                assert watcher.query(target["expr"], 600), panel["title"]
        watcher.wait_silent(120)
        fired = {alert for alert, _ in watcher.alerts("[1h]")}
    assert fired >= {alert for alerts in FAULTS.values() for alert in alerts}
    assert not fired & NOT_HERE.keys()
