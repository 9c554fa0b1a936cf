"""Run by a vendor client's interpreter: `cochl` 2: methods of SpeakerProfileApi, in sequence.

Arguments: host, organization key, and the methods with their arguments, a JSON array of arrays. Prints JSON; its `said`
has what each returned or raised.
"""

import json
import sys

from cochl.sense import SpeakerProfileApi


def called(api: SpeakerProfileApi, method: str, *arguments: str) -> dict[str, object]:
    try:
        return {"value": getattr(api, method)(*arguments)}
    except BaseException as error:
        # The client's own exceptions derive from BaseException.
        return {"raised": type(error).__name__, "message": str(error)}


host, key, calls = sys.argv[1:]
api = SpeakerProfileApi(key, host=host)
print(json.dumps({"value": {"said": [called(api, *call) for call in json.loads(calls)]}}))
