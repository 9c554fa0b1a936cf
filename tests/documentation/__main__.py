"""Checks every page of the project; prints faults, and exits with 1 if there are any."""

import sys

from tests.conftest import ROOT
from tests.documentation.checks import faults
from tests.documentation.pages import files, read

pages = [read(path) for path in sorted(files("*.md"))]
found = [fault for page in pages for fault in faults(page, ROOT)]
print("\n".join(found) or f"{len(pages)} pages of documentation: every link, path, command and setting exists")
sys.exit(1 if found else 0)
