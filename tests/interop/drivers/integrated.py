"""Run by a vendor client's interpreter: `cochl` 2: IntegratedApi.analyze_file and the result of its job.

Arguments: host, key, audio file, services to enable (of "sound speech insights", and "extra" for an unknown option; or
"job ID" to fetch that job alone). Prints JSON.
"""

import json
import sys

from cochl.sense import IntegratedApi, IntegratedApiOptions


def analysed(host: str, key: str, path: str, wanted: str) -> dict[str, object]:
    api = IntegratedApi(key, host=host)
    if wanted.startswith("job "):
        return {"result": api.get_completed_result(wanted.removeprefix("job "))}
    options = IntegratedApiOptions("sound" in wanted, "speech" in wanted, "insights" in wanted)
    if "extra" in wanted:
        options.unexpected = True
    accepted = api.analyze_file(path, options)
    return {"accepted": accepted, "result": api.get_completed_result(accepted["job_id"])}


said: dict[str, object]
try:
    said = {"value": analysed(*sys.argv[1:])}
except BaseException as error:
    # The client's own exceptions derive from BaseException.
    said = {"raised": type(error).__name__, "message": str(error)}
print(json.dumps(said))
