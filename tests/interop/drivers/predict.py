"""Run by a vendor client's interpreter: `cochl`, any release from 1.0: Client.predict on a file.

Arguments: host, key, audio file. Prints JSON.
"""

import json
import sys

from cochl.sense import APIConfig, Client, SensitivityConfig, SensitivityScale


def predicted(host: str, key: str, path: str) -> dict[str, object]:
    sensitivity = SensitivityConfig(SensitivityScale.MEDIUM, {"Speech": SensitivityScale.VERY_LOW})
    config = APIConfig(host=host, sensitivity=sensitivity)
    client = Client(key, config)
    result = client.predict(path)
    return {
        "windows": result.events.to_dict(config)["window_results"],
        "summary": result.events_summarized(config),
        "tags": [tag.name for tag in client.get_official_tags()],
    }


said: dict[str, object]
try:
    said = {"value": predicted(*sys.argv[1:])}
except BaseException as error:
    # The client's own exceptions derive from BaseException.
    said = {"raised": type(error).__name__, "message": str(error)}
print(json.dumps(said))
