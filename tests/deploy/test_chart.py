"""The chart, rendered by helm, and its resources by Kubernetes' schemas.

`make chart-test` runs this with the schemas; it needs helm.
"""

import shutil
import subprocess
from collections.abc import Iterable
from typing import Any, Final

import pytest

from infra.settings import Settings
from tests.conftest import ROOT

CHART: Final = ROOT / "infra/deploy/chart"
CLUSTER: Final = ("replicas=3", "broker=kafka://k1:9092", "secret=earshot", "serviceMonitor.enabled=true")

pytestmark = pytest.mark.skipif(shutil.which("helm") is None, reason="there is no helm here")


def helm(settings: Iterable[str] = ()) -> "subprocess.CompletedProcess[str]":
    command = ["helm", "template", "ears", str(CHART), "--kube-version", "1.34.0"]
    return subprocess.run([*command, *(f"--set={one}" for one in settings)], capture_output=True, text=True)


@pytest.mark.parametrize("settings", [(), CLUSTER])
def test_resources_fit_the_schemas_of_kubernetes(settings: tuple[str, ...]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="`make chart-test` brings the schemas")
    yaml = pytest.importorskip("yaml")
    resources: list[dict[str, Any]] = [one for one in yaml.safe_load_all(helm(settings).stdout) if one]
    for one in resources:
        if one["kind"] != "ServiceMonitor":  # It is not of Kubernetes itself.
            validate.validate(one, "1.34", strict=True)
    kinds = {one["kind"] for one in resources}
    assert kinds >= {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"}
    (nodes,) = (one for one in resources if one["kind"] == "StatefulSet")
    environment = {entry["name"] for entry in nodes["spec"]["template"]["spec"]["containers"][0]["env"]}
    fields = {f"EARSHOT_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in environment if name.startswith("EARSHOT_")} <= fields


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (("replicas=3",), "more than one node needs a Kafka: set broker"),
        (("replicas=3", "broker=kafka://k1:9092"), "more than one node needs a PostgreSQL"),
        (("broker=k1:9092",), "broker"),
        (("settings.PORT=1",), "PORT"),
        (("replica=3",), "replica"),
        (("volume.size=much",), "size"),
    ],
)
def test_wrong_values_are_refused(settings: tuple[str, ...], reason: str) -> None:
    refused = helm(settings)
    assert refused.returncode != 0
    assert reason in refused.stderr
