"""The cores and the memory that a process may use follow the limits of its control groups."""

import os
import re
import threading
from pathlib import Path

import pytest

from streams import memory
from streams.cores import LOOP_SLICE, usable, wake_promptly

FOLDER = Path(__file__).parents[3]
CPU = "3:cpuset:/\n2:cpu,cpuacct:/pods/a\n"
UNLIMITED = {"cpu,cpuacct/pods/a/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/pods/a/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {}, 64),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "10000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "25600000 100000\n"}, 64),
        # A limit of a group around this one counts too.
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        # The group's path outside of the container, which sees itself as the root.
        ("0::/kubepods/pod1\n", {"cpu.max": "400000 100000\n"}, 4),
        (CPU + "0::/\n", UNLIMITED, 64),
        (CPU, {**UNLIMITED, "cpu,cpuacct/pods/a/cpu.cfs_quota_us": "250000\n"}, 3),
        (CPU, {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ("0::/\n", {"cpu.max": "what\n"}, 64),
        ("0::/\n", {"cpu.max": "1 0\n"}, 64),
        ("", {}, 64),
        (None, {}, 64),
    ],
)
def test_cores_follow_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str | None, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    if groups is not None:
        lay(tmp_path, groups, files)
    assert usable(tmp_path) == cores


@pytest.mark.parametrize(
    ("groups", "files", "mib"),
    [
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": f"{5 << 20}\n"}, 5),
        ("4:memory:/a\n0::/\n", {"memory/memory.limit_in_bytes": f"{7 << 20}\n"}, 7),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_memory_follows_limit(tmp_path: Path, groups: str, files: dict[str, str], mib: int | None) -> None:
    lay(tmp_path, groups, files)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory.allowed(tmp_path) == (machine if mib is None else mib << 20)


def lay(root: Path, groups: str, files: dict[str, str]) -> None:
    """Write the files of control groups, and to which a process belongs."""
    for name, text in {"../../../proc/self/cgroup": groups, **files}.items():
        (file := root / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_only_one_place_counts_cores() -> None:
    counts = re.compile(r"cpu_count|sched_getaffinity")
    files = [file for room in ("app", "infra", "streams", "topics") for file in (FOLDER / room).rglob("*.py")]
    assert [file.name for file in files if counts.search(file.read_text())] == ["cores.py"]


def test_prompt_thread_keeps_its_policy_and_priority() -> None:
    """It has a short slice, if the kernel knows slices; neither children nor new threads inherit it."""

    def slice_of(process: str = "thread-self") -> str | None:
        found = re.search(r"se\.slice *: *(\d+)", Path("/proc", process, "sched").read_text())
        return None if found is None else found[1]

    found: list[object] = []

    def run() -> None:
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        wake_promptly(LOOP_SLICE)
        inner = threading.Thread(target=lambda: found.append(slice_of()))
        found.extend((slice_of(), os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER))
        found.append(os.getpriority(os.PRIO_PROCESS, 0) == priority)
        inner.start()
        inner.join()

    if slice_of() is None:
        pytest.skip("the kernel does not tell slices")
    before = slice_of()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [str(int(LOOP_SLICE * 1e9)), True, True, before]
