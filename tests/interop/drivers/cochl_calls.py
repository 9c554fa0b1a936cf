"""Run by a vendor client's interpreter: `cochl`, any release from 1.0: calls of its classes, in sequence.

Argument: a JSON array of calls: host, key, `Class.method`, and its arguments. Prints what each returned or raised.
"""

import json
import sys
from typing import Any

from cochl import sense


def called(host: str, key: str, name: str, *arguments: Any) -> Any:
    kind, method = name.split(".")
    if kind == "Client":
        scale = sense.SensitivityScale
        sensitivity = sense.SensitivityConfig(scale.MEDIUM, {"Speech": scale.VERY_LOW})
        config = sense.APIConfig(host=host, sensitivity=sensitivity)
        client = sense.Client(key, config)
        result = client.predict(*arguments)
        tags = [tag.name for tag in client.get_official_tags()]
        windows = result.events.to_dict(config)["window_results"]
        return {"windows": windows, "summary": result.events_summarized(config), "tags": tags}
    if method == "analyze_file":
        file, services, more = arguments
        options = sense.IntegratedApiOptions(*services)
        vars(options).update(more)
        arguments = file, options
    return getattr(getattr(sense, kind)(key, host=host), method)(*arguments)


said: list[dict[str, object]] = []
for call in json.loads(sys.argv[1]):
    try:
        said.append({"value": called(*call)})
    except BaseException as error:
        # The client's own exceptions derive from BaseException.
        message = getattr(error, "message", str(error))
        said.append({"raised": type(error).__name__, "text": str(error), "message": message})
print(json.dumps(said))
