"""The units of systemd, by systemd's own checks."""

import re
import shutil
import subprocess
from typing import Final

import pytest

from tests.conftest import ROOT

UNITS: Final = ROOT / "infra/deploy"
#: Of `systemd-analyze security`, from 0 (confined) to 10.
EXPOSED: Final = 2.5


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("unit", ["earshot.service", "earshot-agent.service"])
def test_unit_is_confined(unit: str) -> None:
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", UNITS / unit], capture_output=True, text=True
    )
    level = re.search(r"Overall exposure level.*: ([\d.]+)", told.stdout)
    assert level, told.stderr
    assert float(level[1]) <= EXPOSED
