"""Flows of requests about the project itself."""

import msgspec

from ._calls import Call, Flow, ask
from ._errors import JOB_ERRORS
from ._json import decoded
from ._project_values import Project


def project(key: str) -> Flow[Project]:
    answer = yield from ask(Call("GET", "/api/v1/project", headers={"X-Api-Key": key}), errors=JOB_ERRORS)
    return decoded(answer.body, Project)


def keep_audio(key: str, seconds: int | None) -> Flow[Project]:
    """Set how long the audio of jobs is kept; a retry changes nothing more."""
    body = msgspec.json.encode({"keep_audio_seconds": seconds})
    call = Call("PATCH", "/api/v1/project", body, {"X-Api-Key": key, "Content-Type": "application/json"})
    answer = yield from ask(call, errors=JOB_ERRORS)
    return decoded(answer.body, Project)
