"""Licences that manifests may name: identifiers of the SPDX list (https://spdx.org/licenses/), or one's own."""

from __future__ import annotations

import difflib
import re
from typing import Final

#: Those that models, data and their code usually have; more are one line here.
KNOWN: Final = frozenset(
    """
    0BSD AFL-3.0 AGPL-3.0-only AGPL-3.0-or-later Apache-2.0 Artistic-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0
    C-UDA-1.0 CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 CC-BY-NC-3.0 CC-BY-NC-4.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-3.0
    CC-BY-NC-SA-4.0 CC-BY-ND-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC0-1.0 CDLA-Permissive-1.0 CDLA-Permissive-2.0
    CDLA-Sharing-1.0 ECL-2.0 EPL-2.0 EUPL-1.2 GPL-2.0-only GPL-2.0-or-later GPL-3.0-only GPL-3.0-or-later ISC
    LGPL-2.1-only LGPL-2.1-or-later LGPL-3.0-only LGPL-3.0-or-later MIT MIT-0 MPL-2.0 MS-PL ODC-By-1.0 ODbL-1.0
    OFL-1.1 PDDL-1.0 PostgreSQL Python-2.0 Unlicense Zlib
    """.split()  # noqa: SIM905
)
#: A licence that SPDX does not list; its text belongs beside the manifest.
OWN: Final = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")


def fault(licence: str) -> str | None:
    """Return what is wrong with an expression like `Apache-2.0` or `MIT AND CC-BY-4.0`, None when nothing is."""
    names = re.split(r" (?:AND|OR) ", licence)
    for name in names:
        if name not in KNOWN and not OWN.fullmatch(name):
            near = (*difflib.get_close_matches(name, sorted(KNOWN), n=1), "Apache-2.0")[0]
            return f"licence {name!r} is unknown, expected an SPDX identifier such as {near}, or LicenseRef-NAME"
    return None
