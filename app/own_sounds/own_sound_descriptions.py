"""The operations on own sounds, as the documents describe them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from app.http.bodies import decode
from app.http.descriptions import Answer, Body, Description, Parameter, fault_of, integer_query, json_answer, json_body
from app.http.operation import Handler
from app.own_sounds import kept_embeddings, operations
from app.own_sounds.own_sound_bodies import (
    Findings,
    FoundPassage,
    NewMark,
    ShownFigures,
    ShownMark,
    ShownSound,
    SoundList,
    Switch,
)
from app.shared_descriptions import BROKEN, PROJECT_KEY
from topics.errors import BadRequest, Conflict, DirectoryDown, NotFound

MARKED: Final = datetime(2026, 11, 22, 6, 30, tzinfo=UTC)
LEARNT: Final = datetime(2026, 11, 22, 6, 49, tzinfo=UTC)
JOB: Final = "2nUJ5Ar7ybTNe3FmEwgGvRHd"
SESSION: Final = "0Zr4ej4rE9xaiDvNyPbkK2M3"
MARK: Final = "5sQf7WbTNe3FmEwgGvRHdXyz"
SOUND: Final = ShownSound(
    "Espresso_machine",
    MARKED,
    True,
    LEARNT,
    True,
    {"streams": ShownFigures(12, 1.0, 0.29, ()), "recordings": ShownFigures(12, 0.917, 0.3, ("vacuum_cleaner",))},
    [ShownMark(MARK, JOB, None, 12.0, 15.5, True)],
)
FOUND: Final = Findings("Espresso_machine", [FoundPassage(12.0, 17.0, 0.97)], 60.0)

NAME: Final = Parameter("name", "path", str, "Of the sound.", True, "Espresso_machine")
IN_JOB: Final = Parameter("job_id", "path", str, "Id of the job.", True, JOB)
IN_SESSION: Final = Parameter("session_id", "path", str, "Id of the session.", True, SESSION)
DOWN: Final = DirectoryDown("the database does not answer")
UNKNOWN: Final = NotFound("the project teaches no such sound")
NO_SOURCE: Final = NotFound(operations.NO_SUCH)
NOT_LEARNT: Final = Conflict("the sound has to be learnt first")
SHOWN: Final = {"espresso": SOUND}
KEEPING: Final = (
    "A mark stores 192 numbers of the second model for each 2 or 5 s; audio cannot be rebuilt from them. It outlives "
    "the recording, until you delete it."
)


def _marking(what: str, place: Parameter) -> Description:
    return Description(
        summary=f"Mark a passage of {what}",
        text=f"Says whether the sound is in the passage. The first mark of a sound creates it. {KEEPING}",
        key=PROJECT_KEY,
        parameters=(NAME, place),
        bodies=(Body(NewMark, {"there": NewMark(12.0, 15.5), "not": NewMark(40.0, 42.0, False)}),),
        answers={201: Answer("The sound.", (ShownSound,), SHOWN)},
        faults=(
            fault_of(decode, msgspec.json.Decoder(NewMark), b"[]"),
            BadRequest("end: must be after start, by at most 30 s"),
            BadRequest(kept_embeddings.NO_SOUND),
            BadRequest("the model knows a sound Siren already: choose another name, such as Our_siren"),
            NO_SOURCE,
            Conflict(kept_embeddings.NOT_KEPT),
            Conflict("the passage is not analysed yet"),
            DOWN,
            *BROKEN,
        ),
    )


def _finding(what: str, place: Parameter) -> Description:
    begin = operations.FROM
    return Description(
        summary=f"Look for a sound in {what}",
        text=f"Where the sound would be reported if it were on. At most {operations.MOST_FOUND} passages; `more` says "
        "whether others follow.",
        key=PROJECT_KEY,
        parameters=(NAME, place, integer_query(begin)),
        answers=json_answer("Where it would be reported.", one=FOUND),
        faults=(
            fault_of(begin.read, {begin.name: "x"}),
            NO_SOURCE,
            NotFound(operations.OTHER_MODEL),
            UNKNOWN,
            NOT_LEARNT,
            Conflict(kept_embeddings.NOT_KEPT),
            DOWN,
            *BROKEN,
        ),
    )


OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    operations.list_sounds: Description(
        summary="List the project's own sounds",
        text="With their marks and, once learnt, their figures.",
        key=PROJECT_KEY,
        answers=json_answer("The sounds by name.", one=SoundList([SOUND])),
        faults=(DOWN, 500),
    ),
    operations.switch_sound: Description(
        summary="Switch an own sound on or off",
        text="Sessions and jobs created from then on report a sound that is on, beside the model's. Other nodes "
        "follow within {key_cache_seconds} s.",
        key=PROJECT_KEY,
        parameters=(NAME,),
        bodies=json_body(on=Switch(True), off=Switch(False)),
        answers={200: Answer("The sound.", (ShownSound,), SHOWN)},
        faults=(fault_of(decode, msgspec.json.Decoder(Switch), b"[]"), UNKNOWN, NOT_LEARNT, DOWN, 500),
    ),
    operations.learn_sound: Description(
        summary="Learn an own sound",
        text="Needs ten marked passages or more; takes some seconds. If the sound is on, sessions and jobs created "
        "from then on use the new version.",
        key=PROJECT_KEY,
        parameters=(NAME,),
        answers={200: Answer("The sound.", (ShownSound,), SHOWN)},
        faults=(
            BadRequest("3 passages are marked as the sound, and 10 are needed: mark more of them"),
            UNKNOWN,
            DOWN,
            500,
        ),
    ),
    operations.delete_sound: Description(
        summary="Delete an own sound",
        text="With its marks and what was learnt from them. Open sessions report it to their end.",
        key=PROJECT_KEY,
        parameters=(NAME,),
        answers={204: Answer("Deleted.")},
        faults=(UNKNOWN, DOWN, 500),
    ),
    operations.delete_mark: Description(
        summary="Delete a mark",
        text="Has no effect until the sound is learnt again.",
        key=PROJECT_KEY,
        parameters=(NAME, Parameter("mark", "path", str, "Id of the mark.", True, MARK)),
        answers={204: Answer("Deleted.")},
        faults=(NotFound("the sound has no such mark"), DOWN, 500),
    ),
    operations.mark_in_job: _marking("a job's recording", IN_JOB),
    operations.mark_in_session: _marking("a session", IN_SESSION),
    operations.find_in_job: _finding("a job's recording", IN_JOB),
    operations.find_in_session: _finding("a session", IN_SESSION),
}
