"""The alerts: by Prometheus' own tests, by the metrics that a service has, and by a Prometheus that watches one."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.conftest import ROOT
from tests.ports import free_port
from tests.process import ServiceProcess, ask
from tests.waiting import wait_for

RULES: Final = ROOT / "infra/deploy/prometheus/alerts.yaml"
PROMETHEUS: Final = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: earshot
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

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
    sections = set(re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE))
    assert sections == set(re.findall(r"alert: (\w+)", RULES.read_text()))


@pytest.mark.slow
def test_each_metric_of_alerts_and_dashboard_exists(watched: ServiceProcess) -> None:
    shown = set(re.findall(r"^(\w+)[ {]", ask("GET", f"{watched.url}/metrics").text, re.MULTILINE))
    for file in (RULES, ROOT / "infra/deploy/grafana.json"):
        named = set(re.findall(r"\b((?:earshot|process)_\w+)\b", file.read_text()))
        assert named - {"earshot_request_seconds_bucket"} <= shown, file


@needs_prometheus
@pytest.mark.slow
def test_prometheus_finds_what_is_wrong_with_a_service(watched: ServiceProcess, tmp_path: Path) -> None:
    """A process of a worker that dies, wrong keys, and a service that ends: the alerts fire; all others are silent."""
    # Waiting is tested by promtool.
    (tmp_path / "alerts.yaml").write_text(re.sub(r"\n +for: \w+", "", RULES.read_text()))
    (tmp_path / "prometheus.yml").write_text(PROMETHEUS.format(port=watched.port))
    port = free_port()
    options = {"web.listen-address": f"127.0.0.1:{port}", "storage.tsdb.path": "tsdb", "config.file": "prometheus.yml"}
    command = ["prometheus", "--log.level=error", *(f"--{name}={value}" for name, value in options.items())]

    def firing() -> set[str]:
        told: Any = json.loads(ask("GET", f"http://127.0.0.1:{port}/api/v1/alerts").text)
        return {alert["labels"]["alertname"] for alert in told["data"]["alerts"] if alert["state"] == "firing"}

    def guess() -> bool:
        for _ in range(50):
            ask("GET", f"{watched.url}/audio_sessions/", headers={"X-Api-Key": "guessed"})
        return "EarshotKeysGuessed" in firing()

    with subprocess.Popen(command, cwd=tmp_path) as prometheus:
        try:
            wait_for(lambda: is_watched(port))
            assert firing() == set()
            wait_for(guess)
            assert firing() == {"EarshotKeysGuessed"}
            watched.kill()
            wait_for(lambda: "EarshotDown" in firing())
            watched.start()
            wait_for(lambda: "EarshotDown" not in firing())
        finally:
            prometheus.terminate()


def is_watched(port: int) -> bool:
    try:
        told: Any = json.loads(ask("GET", f"http://127.0.0.1:{port}/api/v1/targets").text)
    except (httpx2.TransportError, ValueError):
        return False
    return [target["health"] for target in told["data"]["activeTargets"]] == ["up"]
