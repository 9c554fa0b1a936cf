"""Valid and invalid requests that schemathesis generates from the document, with all its checks of the answers."""

import gc
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FailedHealthCheck, Unsatisfiable
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from tests.contract.api import RAW, Api, Service, tone, wav
from tests.contract.jobs import Jobs
from tests.process import ADMIN_KEY, KEY, ORG_KEY

HEADERS: Final = {"X-Api-Key": KEY, "X-Org-Key": ORG_KEY, "Authorization": f"Bearer {ADMIN_KEY}"}
SPEECH_HEADERS: Final = {**HEADERS, "Authorization": f"Bearer {KEY}"}
#: It would invalidate the key of all other requests.
NOT_TRIED: Final = "rotateKey"
#: Accepted findings by operation, with the reason.
REASONS: Final[Mapping[str, Mapping[str, str]]] = {
    "RejectedPositiveData": {
        "options that do not fit together are 400, by rules over several fields": "analyze analyzeFile addAlarmRule "
        "replaceAlarmRule tryAlarmRule",
        "tags are those of the model in use, integers have no fraction": "createSession createSessionToo planProject "
        "updateSession",
        "tokens of pages are signed": "readStatus listSessions listSessionsToo listJobs listAlarms",
        "a session takes chunks or windows, and the data has to hold whole samples": "predict uploadChunk",
        "a name may be taken, or not printable": "createOrganization createProject nameSpeaker",
        "the URL of a destination is one of its kind": "addDestination",
        "the file has to hold audio, and the model to be there": "createTranscription createTranslation",
        "the days have to be in order, and a year apart at most": "readDailyUsage",
        "the day has to be one of the calendar": "sessionActivity projectActivity",
        "the end comes after the start, and seconds have no exponent": "readWaveform readSpectrogram",
        "links are signed, and a range lies in the recording": "readAudio",
        "the longest time is the operator's": "changeProject",
        "a marked passage ends after its start, by at most 30 s": "markInSession markInJob",
        "types of events are known, and cursors are those of the session": "followSession readResults",
    },
    "AcceptedNegativeData": {
        "times are of all of ISO 8601, and other parameters are ignored": "listSessions listSessionsToo listJobs "
        "listAlarms",
        "other parameters are ignored": "followProject followSession projectActivity readAudio readDailyUsage "
        "readSpectrogram readUsage readWaveform sessionActivity",
        "the contract answers 200 with the rule that is broken in `error`": "registerVoice removeSpeaker "
        "reEnrollSpeaker recognizeSpeakers nameSpeaker",
    },
    "ServerError": {
        "the contract answers 500 for audio that does not decode": "analyze analyzeFile",
        "501 is what it answers": "createCustomSound finishCustomSound",
    },
    "JsonSchemaError": {
        "OpenAPI 3.1 has no words for events: `x-events` has their types": "followJob followSession followProject",
    },
}
ACCEPTED: Final = frozenset(
    (name, kind) for kind, reasons in REASONS.items() for names in reasons.values() for name in names.split()
)
#: Grammars that schemas cannot express.
schemathesis.openapi.format("audio-content-type", st.sampled_from(["audio/wav", "audio/flac", RAW]))

#: Timeout of an answer; schemathesis listens this long to an endless stream without events, so it does so once.
ANSWER_SECONDS: Final = 30.0
STREAM_SECONDS: Final = 15.0

ID: Final = r"[0-9A-Za-z]{24}"
Findings = dict[tuple[str, str], str]


def findings(service: Service, examples: int) -> Findings:
    """Return the findings in answers to `examples` requests per operation, valid and invalid each."""
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    schema.config.update(base_url=service.url)
    schema.config.max_stream_events = 1
    found: Findings = {}
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    operations = [one for one in operations if one.definition.raw["operationId"] != NOT_TRIED]
    # Sockets need an upgrade, which schemathesis does not request.
    operations = [one for one in operations if "101" not in one.definition.raw["responses"]]
    sessions = Api(service)
    with closing(sessions.http), Jobs(service) as jobs:
        makers: dict[str, Callable[[], str]] = {
            "session_id": sessions.create,
            "job_id": lambda: jobs.accepted(wav(tone(1.0))),
        }
        # Lists have several.
        for make in 3 * [*makers.values()]:
            make()
        for operation in operations:
            places = {name: make() for name, make in makers.items() if f"{{{name}}}" in operation.path}
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                _try(operation, mode, places, examples, found)
    # schemathesis leaves connections open; collect them here, not in the middle of another test.
    gc.collect()
    return found


def _try(operation: Any, mode: GenerationMode, places: Mapping[str, str], examples: int, found: Findings) -> None:
    operation_id = operation.definition.raw["operationId"]
    patience = ANSWER_SECONDS
    if operation_id.startswith("follow"):
        patience, examples = STREAM_SECONDS, min(examples, 2)
    headers = SPEECH_HEADERS if operation.path.startswith("/v1/") else HEADERS

    answered: list[int] = []

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        # Fifty draws without a request are enough to know that there is none.
        suppress_health_check=[one for one in HealthCheck if one is not HealthCheck.filter_too_much],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def tried(case: Any) -> None:
        for name in case.path_parameters.keys() & places.keys():
            # If the id is well-formed, use an existing one.
            if re.fullmatch(ID, str(case.path_parameters[name])):
                case.path_parameters[name] = places[name]
        answer = case.call(headers=headers, timeout=patience)
        answered.append(answer.status_code)
        try:
            case.validate_response(answer, headers=headers)
        except FailureGroup as group:
            # A header says what is wrong with the audio; without it, 500 is a fault.
            explained = answer.status_code != 500 or "earshot-reason" in answer.headers
            for failure in group.exceptions:
                kind = type(failure).__name__
                if (operation_id, kind) not in ACCEPTED or not explained:
                    found.setdefault((operation_id, kind), f"{failure}\n{answer.content[:500]!r}")

    try:
        tried()
    except (Unsatisfiable, FailedHealthCheck):
        # Operations without input have no invalid requests.
        if mode is GenerationMode.POSITIVE or answered:
            raise
