"""The version of the client, and its User-Agent."""

import sys
from typing import Final

VERSION: Final = "0.1.0"
USER_AGENT: Final = f"earshot-client/{VERSION} python/{'.'.join(map(str, sys.version_info[:3]))}"
