"""Formats the table as text, with the versions, machine and commit of its figures."""

import platform
import subprocess
from importlib.metadata import version
from typing import Final

from benchmarks import procfs
from benchmarks.measures import Row

PACKAGES: Final = (
    "starlette", "uvicorn", "uvloop", "httptools", "msgspec", "orjson", "pybase64", "faust-streaming", "aiokafka",
    "rocksdict", "numba", "numpy", "onnxruntime",
)  # fmt: skip
HEADER: Final = "| what | median | min - max | unit | bar | beside |\n| --- | --- | --- | --- | --- | --- |"


def versions() -> str:
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in PACKAGES)])


def commit() -> str:
    """Return the commit of the working tree, marked as dirty if files have changed."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return described.stdout.strip()


def heading() -> str:
    return f"{procfs.machine()}\n{versions()}\ncommit {commit()}"


def line(row: Row) -> str:
    spread = f"{number(row.low)} - {number(row.high)}"
    beside = ", ".join(f"{name} {number(value)}" for name, value in row.beside.items())
    return f"| {row.name} | {number(row.value)} | {spread} | {row.unit} | {_bar(row)} | {beside} |"


def _bar(row: Row) -> str:
    if row.bar is None:
        return ""
    return f"{'<=' if row.at_most else '>='} {number(row.bar)}: {'met' if row.met else 'MISSED'}"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
