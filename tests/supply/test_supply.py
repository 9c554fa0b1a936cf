"""Installed packages come from the right sources, with allowed and listed licences; faults are found."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT
from tests.supply import __main__ as supply
from tests.supply import licences, lock

WITH_UV = pytest.mark.skipif(shutil.which(lock.UV) is None, reason="uv is not here; make brings it")
FILE: dict[str, object] = {"url": f"{lock.FILES}a/b.whl", "hash": "sha256:" + "0" * 64}
SOUND: dict[str, object] = {"name": "a", "version": "1", "source": {"registry": lock.INDEX}, "wheels": [FILE]}


#: A command that asks a package index for a distribution of ours, which is no path; or the form of such a request.
ASKED: Final = re.compile(
    r"\b(?:pip|pip3|pipx|uv|uvx|poetry|pdm|conda)\b[^\n]*[ '\"=]earshot[-_](?:server|client|lab)(?![\w./*-]|\"\])"
    r"|(?<![./\w])earshot[-_](?:server|client|lab)\["
)
INSTALLS: Final = re.compile(r"\bpip3? (?:install|download)\b(?P<rest>[^\n]*)")


def tracked() -> Iterator[tuple[str, str]]:
    """Yield the names and texts of all files of the project, except this one."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        path = ROOT / name
        if path.is_file() and path != Path(__file__):
            with suppress(UnicodeDecodeError):
                yield name, path.read_text()


def test_nothing_asks_an_index_for_a_distribution_of_ours() -> None:
    """Nobody has registered these names, so a stranger may, and would run code where somebody follows the advice."""
    asks = ["pip install 'earshot-server[kafka]'", "uv pip install -q earshot-client", "or earshot-lab[x]"]
    others = ["pip install ./app/client", "pip install dist/earshot_server-0.1.0-py3-none-any.whl[speech]"]
    assert all(map(ASKED.search, [*asks, "uvx earshot_lab"]))
    assert not any(map(ASKED.search, [*others, '"earshot-client",']))
    assert [(name, found.group()) for name, text in tracked() for found in ASKED.finditer(text)] == []


def test_what_make_installs_has_hashes() -> None:
    for found in INSTALLS.finditer((ROOT / "Makefile").read_text()):
        (listed,) = re.findall(r"--require-hashes .*-r (\S+)$", found["rest"])
        text = (ROOT / listed).read_text()
        assert re.search(r"(?m)^[\w.-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", text), listed
    for line in (ROOT / "Makefile").read_text().splitlines():
        if re.search(r"\$\(UV\) (sync|build|tool|run|pip)\b", line):
            # An isolated build takes hatchling from the index, in any version.
            assert "--no-build-isolation" in line or "--no-install-workspace" in line, line
            assert "--locked" in line or "--frozen" in line or " build " in line, line


@WITH_UV
def test_offline_checks_find_no_faults() -> None:
    assert list(supply.offline_faults(lock.UV)) == []


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
    expressions = ("MIT", "MIT OR (Apache-2.0 WITH LLVM-exception)", "GPL-3.0-only", "", "MIT AND X")
    found = licences.faults(dict(zip("abcde", expressions, strict=True)))
    assert [fault.partition(":")[0] for fault in found] == ["c", "d", "e"]


def test_failed_audit_query_is_not_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"audit": (2, "", "error: no network\n  cause: none"), "export": (0, "a==1", ""), "pip": (0, "a==1", "")}

    def run(uv: str, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, *said[command[0]])

    def audited(offline: bool = False) -> tuple[int, Sequence[str]]:
        return supply.audit("uv", offline), capsys.readouterr().out.splitlines()[-2:]

    monkeypatch.setattr(supply, "_run", run)
    monkeypatch.setattr(supply, "offline_faults", lambda uv: ())
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


@WITH_UV
def test_bill_of_materials_names_every_installed_package() -> None:
    command = [lock.UV, "export", "-q", "--locked", "--offline", "--no-dev", "--all-extras", "--format", "cyclonedx1.5"]
    made = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    named = {component["name"] for component in made["components"]}
    needed = {name for name, purpose in lock.purposes(lock.UV).items() if purpose != "development"}
    assert named == needed | {"earshot-client", "earshot-lab"}


@pytest.mark.parametrize(
    ("settings", "installed", "extras"),
    [
        ({}, [], ["speech"]),
        ({}, ["lab", "s3"], ["speech", "lab", "s3"]),
        ({"BROKER": "embedded://"}, [], ["speech"]),
        ({"BROKER": "kafka://127.0.0.1:9092"}, [], ["speech", "kafka"]),
        ({"DATABASE_URL": "sqlite:///postgres"}, [], ["speech"]),
        ({"DATABASE_URL": "postgresql://u:$(p@h/n"}, [], ["speech", "postgres"]),
        ({"DATABASE_URL_FILE": "url", "BROKER": "kafka://127.0.0.1:9092"}, [], ["speech", "kafka", "postgres"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, [], ["speech", "traces"]),
    ],
)
def test_make_run_syncs_installed_extras_and_those_named_by_settings(
    settings: dict[str, str], installed: list[str], extras: list[str], tmp_path: Path
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    stamps = [f".venv/.extra-{name}" for name in installed]
    for name in "pyproject.toml", "app/client/pyproject.toml", "infra/lab/pyproject.toml", "uv.lock", *stamps:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "url").write_text("postgresql+asyncpg://h/n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EARSHOT_", "MAKE", "OTEL_"))}
    given = {
        name if name.startswith("OTEL_") else f"EARSHOT_{name}": value.replace("url", str(tmp_path / "url"))
        for name, value in settings.items()
    }
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", "run"]
    printed = subprocess.run(
        command, cwd=tmp_path, env=clean | given, capture_output=True, text=True, check=True
    ).stdout
    assert list(dict.fromkeys(re.findall(r"--extra (\S+)", printed))) == extras


def test_make_extra_notes_the_extra() -> None:
    command = ["make", "--dry-run", "extra", "NAME=lab"]
    assert "touch .venv/.extra-lab" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
