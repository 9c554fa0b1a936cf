"""Installed packages come from the right sources, with allowed and listed licences; faults are found."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.supply import __main__ as supply
from tests.supply import licences, lock

UV = shutil.which("uv") or (str(ROOT / ".uv/bin/uv") if (ROOT / ".uv/bin/uv").exists() else None)
FILE: dict[str, object] = {"url": f"{lock.FILES}a/b.whl", "hash": "sha256:" + "0" * 64}
SOUND: dict[str, object] = {"name": "a", "version": "1", "source": {"registry": lock.INDEX}, "wheels": [FILE]}


def test_offline_checks_find_no_faults() -> None:
    assert list(supply.offline_faults()) == []


@pytest.mark.parametrize(
    ("packages", "fault"),
    [
        ([{**SOUND, "source": {"registry": "https://example.org/simple"}}], "a: comes from "),
        ([{**SOUND, "wheels": [{**FILE, "hash": "md5:0"}]}], f"a: {FILE['url']} is elsewhere, or has no SHA-256"),
        ([{**SOUND, "sdist": {**FILE, "url": "https://example.org/a"}}], "a: https://example.org/a is elsewhere"),
        ([SOUND, {**SOUND, "version": "2"}], "a: has several versions"),
    ],
)
def test_package_from_other_source_is_reported(packages: list[dict[str, object]], fault: str) -> None:
    assert list(lock.faults([SOUND])) == []
    (line,) = lock.faults(packages)
    assert line.startswith(fault)


def test_disallowed_licences_are_reported() -> None:
    expressions = {
        "a": "MIT",
        "b": "MIT OR (Apache-2.0 WITH LLVM-exception)",
        "c": "GPL-3.0-only",
        "d": "",
        "e": "MIT AND X",
    }
    assert [fault.partition(":")[0] for fault in licences.faults(expressions)] == ["c", "d", "e"]


def test_failed_audit_query_is_not_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"audit": (2, "", "error: no network\n  cause: none"), "export": (0, "a==1", ""), "pip": (0, "a==1", "")}

    def run(uv: str, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, *said[command[0]])

    def audited(offline: bool = False) -> tuple[int, Sequence[str]]:
        return supply.audit("uv", offline), capsys.readouterr().out.splitlines()[-2:]

    monkeypatch.setattr(supply, "_run", run)
    status, lines = audited()
    assert status == 1
    assert lines[0] == "withdrawn versions (the index): none"
    assert lines[1] == "advisories (OSV): NOT CHECKED: no network (OFFLINE=1 does without)"
    status, lines = audited(offline=True)
    assert status == 0
    assert all("not checked" in line for line in lines)
    said["audit"] = (0, "", "")
    assert audited()[0] == 0
    said["pip"] = (0, "a==1", "warning: `a==1` is yanked (reason: broken)")
    status, lines = audited()
    assert status == 1
    assert "is yanked" in lines[0]
    said["pip"], said["audit"] = (0, "", ""), (1, "a 1 has CVE-1", "")
    status, lines = audited()
    assert status == 1
    assert "CVE-1" in lines[1]


@pytest.mark.skipif(UV is None, reason="uv is not here; make brings it")
def test_bill_of_materials_names_every_installed_package() -> None:
    assert UV is not None
    command = [UV, "export", "-q", "--locked", "--offline", "--no-dev", "--all-extras", "--format", "cyclonedx1.5"]
    made = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    named = {component["name"] for component in made["components"]}
    needed = {name for name, purpose in lock.purposes(lock.packages()).items() if purpose != "development"}
    assert named == needed | {"earshot-client", "earshot-lab"}


@pytest.mark.parametrize(
    ("settings", "extras"),
    [
        ({}, ["speech"]),
        ({"BROKER": "embedded://"}, ["speech"]),
        ({"BROKER": "kafka://127.0.0.1:9092"}, ["speech", "kafka"]),
        ({"DATABASE_URL": "sqlite:///postgres"}, ["speech"]),
        ({"DATABASE_URL": "postgresql://u:$(p@h/n"}, ["speech", "postgres"]),
        ({"DATABASE_URL_FILE": "url", "BROKER": "kafka://127.0.0.1:9092"}, ["speech", "kafka", "postgres"]),
    ],
)
def test_make_run_installs_extras_named_by_settings(
    settings: dict[str, str], extras: list[str], tmp_path: Path
) -> None:
    (tmp_path / "url").write_text("postgresql+asyncpg://h/n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EARSHOT_", "MAKE"))}
    given = {f"EARSHOT_{name}": value.replace("url", str(tmp_path / "url")) for name, value in settings.items()}
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", "run"]
    printed = subprocess.run(command, cwd=ROOT, env=clean | given, capture_output=True, text=True, check=True).stdout
    wanted = [line.rpartition("--extra ")[2] for line in printed.splitlines() if "sync" in line and "--extra " in line]
    assert list(dict.fromkeys(wanted)) == extras
