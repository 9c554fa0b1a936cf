"""Debian's Prometheus with the alerts that are shipped, in a world where time runs faster."""

import json
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from tests.conftest import ROOT
from tests.ports import free_port
from tests.process import ask
from tests.waiting import wait_for

RULES: Final = ROOT / "infra/deploy/prometheus/alerts.yaml"
#: Prometheus asks each minute by default. Here it asks as many times as often as the rules' times are shorter, so that
#: each rule sees as many samples as there; an alert that is to fire after minutes fires after seconds.
FASTER: Final = 60
SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
TIME: Final = r"(\d+)([smh])\b"
CONFIGURATION: Final[Mapping[str, Any]] = {
    "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
    "rule_files": ["alerts.yaml"],
}


def faster(rules: str) -> str:
    """Divide each `for`, each window and each bound of a lag by `FASTER`; everything else stays as it is."""

    def cut(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) * SECONDS[found[3]] * 1000 // FASTER}ms"

    rules = re.sub(rf"(for: |\[|offset ){TIME}", cut, rules)
    return re.sub(r"(lag_seconds > )(\d+)", lambda found: f"{found[1]}{int(found[2]) / FASTER:g}", rules)


class Watcher:
    """A Prometheus that watches services, by their ports and the names that the tests give to them."""

    def __init__(self, directory: Path, services: Mapping[str, int]) -> None:
        jobs = [
            {
                "job_name": name,
                "static_configs": [
                    {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name, "job": "earshot"}},
                ],
                # A machine waits three seconds for a lane that is away, and Prometheus ten.
                **({"scrape_interval": "4s", "scrape_timeout": "4s"} if name == "lanes" else {}),
            }
            for name, port in services.items()
        ]
        (directory / "prometheus.yml").write_text(json.dumps({**CONFIGURATION, "scrape_configs": jobs}))
        (directory / "alerts.yaml").write_text(faster(RULES.read_text()))
        self._port = free_port()
        options = {
            "web.listen-address": f"127.0.0.1:{self._port}",
            "storage.tsdb.path": "tsdb",
            "config.file": "prometheus.yml",
        }
        command = ["prometheus", "--log.level=error", *(f"--{name}={value}" for name, value in options.items())]
        self._process = subprocess.Popen(command, cwd=directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()

    def query(self, expression: str, seconds: int = 0) -> list[dict[str, Any]]:
        """Return the results of an expression, now or as a dashboard draws the last seconds; none before it answers."""
        now = time.time()
        range = {"start": now - seconds, "end": now, "step": 1} if seconds else {}
        url = f"http://127.0.0.1:{self._port}/api/v1/query{'_range' if seconds else ''}"
        try:
            told: Any = json.loads(ask("GET", url, params={"query": expression, **range}).text)
        except (httpx2.TransportError, ValueError):
            return []
        assert told["status"] == "success", told
        results: list[dict[str, Any]] = told["data"]["result"]
        return results

    def alerts(self, window: str = "") -> set[tuple[str, str]]:
        """Return the alerts that fire, or that fired in a window, with the names of their services."""
        query = f'ALERTS{{alertstate="firing"}}{window}'
        return {(one["metric"]["alertname"], one["metric"].get("instance", "")) for one in self.query(query)}

    def wait(self, service: str, *alerts: str, seconds: float = 60) -> None:
        """Wait until these alerts have fired for a service, each at some time from now on."""
        due = {(alert, service) for alert in alerts}
        began = time.monotonic()

        def fired() -> set[tuple[str, str]]:
            # Some fire for seconds only, in which a busy machine may not look.
            return self.alerts(f"[{1 + int(time.monotonic() - began)}s]")

        try:
            wait_for(lambda: due <= fired(), seconds)
        except AssertionError:
            raise AssertionError(f"silent: {due - fired()}; firing: {self.alerts()}") from None
        print(f"{service}: {', '.join(alerts)} after {time.monotonic() - began:.1f} s", flush=True)

    def wait_any(self, alert: str) -> str:
        """Wait until an alert fires, or has fired in the last minute; return the name of the service."""
        return wait_for(lambda: next((name for one, name in self.alerts("[1m]") if one == alert), None))

    def wait_watched(self, service: str) -> None:
        """Wait until Prometheus has asked the process that runs now."""
        began = time.time()
        wait_for(lambda: self.query(f'timestamp(up{{instance="{service}"}} == 1) > {began + 1}') != [])

    def wait_clear(self, service: str, *alerts: str, seconds: float = 60) -> None:
        due = {(alert, service) for alert in alerts}
        wait_for(lambda: not due & self.alerts(), seconds)

    def wait_silent(self, seconds: float) -> None:
        """Wait until no alert fires."""
        try:
            wait_for(lambda: not self.alerts(), seconds)
        except AssertionError:
            raise AssertionError(f"firing: {self.alerts()}") from None
