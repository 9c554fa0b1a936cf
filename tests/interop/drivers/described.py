"""Run by a vendor client's interpreter: `cochl` 2: what its parts make of a service's answers and refusals.

Argument: a JSON object: `service`, `key`, `org_key`, and `folder` with recordings. Prints JSON: what each trial
returned or raised.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cochl.sense import APIConfig, Client, CustomSoundApi, IntegratedApi, IntegratedApiOptions, SpeakerProfileApi

given: dict[str, str] = json.loads(sys.argv[1])
WAV, TEXT, TALK = (str(Path(given["folder"]) / name) for name in ("a.wav", "a.txt", "talk.wav"))
UNKNOWN = "not-a-key-of-this-service"


def tried(call: Callable[[], object]) -> dict[str, Any]:
    try:
        return {"value": call()}
    except BaseException as error:
        # The client's own exceptions derive from BaseException.
        told = {"raised": type(error).__name__, "text": str(error)}
        return {**told, "message": getattr(error, "message", "")}


def analyzed(key: str, path: str = WAV, **options: bool) -> Any:
    chosen = IntegratedApiOptions(True, False, False)
    vars(chosen).update(options)
    return IntegratedApi(key, host=api).analyze_file(path, chosen)


def all_services() -> Any:
    jobs = IntegratedApi(key, host=api)
    accepted = jobs.analyze_file(TALK, IntegratedApiOptions(True, True, True))
    return {"accepted": accepted, "result": jobs.get_completed_result(accepted["job_id"])}


service, key, org_key = given["service"], given["key"], given["org_key"]
api, people = f"{service}/api/v1", f"{service}/api/v2"
trials: dict[str, Callable[[], object]] = {
    "analysis, wrong key": lambda: analyzed(UNKNOWN),
    "analysis, bad options": lambda: analyzed(key, audio_insights=True),
    "analysis, no audio": lambda: analyzed(key, TEXT),
    "speaker, wrong key": lambda: SpeakerProfileApi(UNKNOWN, host=people).list_all_speakers(),
    "speaker, bad name": lambda: SpeakerProfileApi(org_key, host=people).add_new_voice("no name!", WAV),
    "prediction, wrong key": lambda: Client(UNKNOWN, APIConfig(host=f"{service}/sense/api/v1")).predict(WAV),
    "result of an unknown job": lambda: IntegratedApi(key, host=api).get_completed_result("0123456789abcdefghijABCD"),
    "all services": all_services,
    "custom sound": lambda: CustomSoundApi(org_key, host=api).upload("Baby_tears", WAV),
}
print(json.dumps({"value": {name: tried(trial) for name, trial in trials.items()}}))
