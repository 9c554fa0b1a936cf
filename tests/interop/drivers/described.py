"""Run by a vendor client's interpreter: tries each of the interface's statements about the vendor's client.

Arguments: the module to import, then a JSON object: `fake` (a server that answers as its path says), `service`, `key`,
`org_key`, and `folder` with recordings. Prints JSON: what each trial returned or raised.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

STATUSES = (400, 401, 402, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504)

lib: Any = importlib.import_module(sys.argv[1])
given: dict[str, str] = json.loads(sys.argv[2])
folder = Path(given["folder"])
NAMES = ("a.wav", "a.flac", "a.txt", "large.wav", "none.wav", "talk.wav")
WAV, FLAC, TEXT, LARGE, MISSING, TALK = (str(folder / name) for name in NAMES)
real_sleep = time.sleep


def short_sleep(seconds: float) -> None:
    real_sleep(min(seconds, 0.02))


time.sleep = short_sleep  # type: ignore[assignment]


def tried(call: Callable[[], object]) -> dict[str, Any]:
    try:
        return {"value": call()}
    except BaseException as error:
        told = {"raised": type(error).__name__, "exception": isinstance(error, Exception), "text": str(error)}
        return {**told, "message": getattr(error, "message", "")}


def jobs(host: str, key: str = "key") -> Any:
    return lib.IntegratedApi(key, host=host)


def speakers(host: str, key: str = "key") -> Any:
    return lib.SpeakerProfileApi(key, host=host)


def sounds(host: str, key: str = "key") -> Any:
    return lib.Client(key, lib.APIConfig(host=host))


def analyzed(api: Any, path: str = WAV, **options: bool) -> Any:
    chosen = lib.IntegratedApiOptions(True, False, False)
    vars(chosen).update(options)
    return api.analyze_file(path, chosen)


def predicted(api: Any, path: str = WAV, timeout: float | None = None) -> Any:
    result = api.predict(path) if timeout is None else api.predict(path, timeout)
    return len(result.events.window_results)


def result_of(host: str, job: str) -> Any:
    return jobs(host).get_completed_result(job)


def all_services(api: Any) -> Any:
    accepted = api.analyze_file(TALK, lib.IntegratedApiOptions(True, True, True))
    return {"accepted": accepted, "result": api.get_completed_result(accepted["job_id"])}


def refused_analysis(host: str) -> Any:
    return analyzed(jobs(host))


def refused_list(host: str) -> Any:
    return speakers(host).list_all_speakers()


def refused_prediction(host: str) -> Any:
    return predicted(sounds(host))


def trials() -> dict[str, Callable[[], object]]:
    fake, service, key = given["fake"], given["service"], given["key"]
    alias, api, people = f"{service}/sense/api/v1", f"{service}/api/v1", f"{service}/api/v2"
    return {
        # 1: exceptions derive from BaseException
        "base": lambda: issubclass(lib.CochlSenseException, Exception),
        "timeout base": lambda: issubclass(lib.TimeoutException, Exception),
        # 2: a refused analysis has the reason phrase, and a sentence about support
        **{f"analysis {n}": partial(refused_analysis, f"{fake}/status/{n}") for n in STATUSES},
        "analysis, wrong key": lambda: analyzed(jobs(api, "not-a-key-of-this-service")),
        "analysis, bad options": lambda: analyzed(jobs(api, key), audio_insights=True),
        "analysis, no audio": lambda: analyzed(jobs(api, key), TEXT),
        # 3: the service's messages about speakers are passed through
        "speaker, a rule": lambda: speakers(f"{fake}/rule").list_all_speakers(),
        **{f"speaker {n}": partial(refused_list, f"{fake}/status/{n}") for n in STATUSES},
        "speaker, wrong key": lambda: speakers(people, "not-a-key-of-this-service").list_all_speakers(),
        "speaker, bad name": lambda: speakers(people, given["org_key"]).add_new_voice("no name!", WAV),
        # 4: empty keys
        "empty key of jobs": lambda: jobs(f"{fake}/unsent", ""),
        "empty key of speakers": lambda: speakers(f"{fake}/unsent", ""),
        "empty key of sounds": lambda: sounds(f"{fake}/unsent", ""),
        # 5: completed results
        "result": lambda: result_of(f"{fake}/completed", "job"),
        "result of failed entries": lambda: result_of(f"{fake}/partly", "job"),
        "result of a failure": lambda: result_of(f"{fake}/failed", "job"),
        "result of a stream that ends": lambda: result_of(f"{fake}/ends", "job"),
        "result of an unknown job": lambda: result_of(api, "0123456789abcdefghijABCD"),
        "all services": lambda: all_services(jobs(api, key)),
        # 6: files of more than 10 MB
        "large voice": lambda: speakers(f"{fake}/unsent").add_new_voice("Kim", LARGE),
        "large recognition": lambda: speakers(f"{fake}/unsent").recognize(LARGE),
        # 7: the client of sound events
        "missing file": lambda: predicted(sounds(f"{fake}/unsent"), MISSING),
        "text": lambda: predicted(sounds(f"{fake}/unsent"), TEXT),
        "flac": lambda: predicted(sounds(alias, key), FLAC),
        **{f"prediction {n}": partial(refused_prediction, f"{fake}/status/{n}") for n in STATUSES},
        "prediction, wrong key": lambda: predicted(sounds(alias, "not-a-key-of-this-service")),
        "prediction that fails": lambda: predicted(sounds(f"{fake}/broken")),
        "prediction that takes too long": lambda: predicted(sounds(f"{fake}/pending"), timeout=0.3),
        "prediction": lambda: predicted(sounds(alias, key)),
        "custom sound": lambda: lib.CustomSoundApi(given["org_key"], host=api).upload("Baby_tears", WAV),
    }


said = {}
for name, trial in trials().items():
    said[name] = tried(trial)
print(json.dumps(said))
