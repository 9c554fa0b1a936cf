"""Checks every page of the project; prints faults, and exits with 1 if there are any."""

import subprocess
import sys

from tests.conftest import ROOT
from tests.documentation.checks import faults
from tests.documentation.pages import read

listed = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout
pages = [read(path) for name in sorted(filter(None, listed.split("\0"))) if (path := ROOT / name).exists()]
found = [fault for page in pages for fault in faults(page, ROOT)]
print("\n".join(found) or f"{len(pages)} pages of documentation: every link, path, command and setting exists")
sys.exit(1 if found else 0)
