"""Large arrays are taken from the kernel once, and given back when a process is told to."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from infra.engines.heap import KEPT_HEAP

#: Takes and frees 64 MB three times; prints the pages that each time came from the kernel, and the resident MB before
#: and after they are given back.
TAKING = """
import json, resource
from pathlib import Path
import numpy as np
from infra.engines import heap

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1_000_000

taken = []
for _ in range(3):
    before = faults()
    np.ones(16_000_000, np.float32)
    taken.append(faults() - before)
kept = resident()
heap.give_back()
print(json.dumps([taken, kept, resident()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory in its own way")
def test_memory_is_kept_and_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKING], env=os.environ | KEPT_HEAP, capture_output=True, text=True, check=True
    )
    (_, *again), kept, left = json.loads(done.stdout)
    assert max(again) < 1000, "64 MB are 16,000 pages"
    assert kept - left > 50
