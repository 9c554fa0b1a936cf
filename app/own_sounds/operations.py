"""Operations on a project's own sounds: mark, learn, try on stored audio, switch on."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec
import structlog

from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.descriptions import (
    Answer,
    Body,
    Description,
    Parameter,
    fault_of,
    integer_query,
    json_answer,
    json_body,
    operation,
)
from app.http.queries import IntegerParameter, query_parameters
from app.http.replies import NO_CONTENT, Reply, json_reply
from app.http.turns import holder_of
from app.own_sounds import kept_embeddings
from app.own_sounds.kept_embeddings import KeptEmbeddings, OwnSoundContext, of_job, of_session
from app.own_sounds.own_sound_bodies import (
    FOUND,
    JOB,
    MARK,
    SESSION,
    SOUND,
    Findings,
    FoundPassage,
    NewMark,
    ShownSound,
    SoundList,
    Switch,
)
from app.shared_descriptions import BROKEN, PROJECT_KEY
from app.windows import WindowRenderer
from topics.errors import BadRequest, Conflict, DirectoryDown, NotFound
from topics.hearing import OwnSound
from topics.keys import is_id, new_id
from topics.ports.directory import Principal
from topics.ports.own_sounds import Mark
from topics.turns import Holder

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Most passages in one answer.
MOST_FOUND: Final = 1000
FROM: Final = IntegerParameter("from", "Where to start, in seconds.", 0, 0, 10**9)
OTHER_MODEL: Final = "the sound was learnt on another model than this audio's"
NO_SUCH: Final = "Not Found"

_MARK: Final = msgspec.json.Decoder(NewMark)
_SWITCH: Final = msgspec.json.Decoder(Switch)

NAME: Final = Parameter("name", "path", str, "Of the sound.", True, "Espresso_machine")
IN_JOB: Final = Parameter("job_id", "path", str, "Id of the job.", True, JOB)
IN_SESSION: Final = Parameter("session_id", "path", str, "Id of the session.", True, SESSION)
DOWN: Final = DirectoryDown("the database does not answer")
UNKNOWN: Final = NotFound("the project teaches no such sound")
NO_SOURCE: Final = NotFound(NO_SUCH)
NOT_LEARNT: Final = Conflict("the sound has to be learnt first")
SHOWN: Final = {"espresso": SOUND}
MARKING: Final = (
    "Says whether the sound is in the passage. The first mark of a sound creates it. A mark stores 192 numbers of the "
    "second model for each 2 or 5 s; audio cannot be rebuilt from them. It outlives the recording, until you delete it."
)
FINDING: Final = (
    "Where the sound would be reported if it were on. At most {MOST_FOUND} passages; `more` says whether others follow."
)


def _marking(route: str, place: Parameter) -> Description:
    return operation(
        route,
        key=PROJECT_KEY,
        parameters=(NAME, place),
        bodies=(Body(NewMark, {"there": NewMark(12.0, 15.5), "not": NewMark(40.0, 42.0, False)}),),
        answers={201: Answer("The sound.", (ShownSound,), SHOWN)},
        faults=lambda: (
            fault_of(decode, _MARK, b"[]"),
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


def _finding(route: str, place: Parameter) -> Description:
    return operation(
        route,
        key=PROJECT_KEY,
        parameters=(NAME, place, integer_query(FROM)),
        answers=json_answer("Where it would be reported.", one=FOUND),
        faults=lambda: (
            fault_of(FROM.read, {FROM.name: "x"}),
            NO_SOURCE,
            NotFound(OTHER_MODEL),
            UNKNOWN,
            NOT_LEARNT,
            Conflict(kept_embeddings.NOT_KEPT),
            DOWN,
            *BROKEN,
        ),
    )


@operation(
    "GET /own_sounds",
    key=PROJECT_KEY,
    answers=json_answer("The sounds by name.", one=SoundList([SOUND])),
    faults=(DOWN, 500),
)
async def list_sounds(call: Call, context: OwnSoundContext) -> Reply:
    """List the project's own sounds.

    With their marks and, once learnt, their figures.
    """
    principal = await context.project_keys.authenticate(call)
    return json_reply(SoundList([ShownSound.of(sound) for sound in await context.sounds.sounds(principal.project)]))


@operation(
    "PATCH /own_sounds/{name}",
    key=PROJECT_KEY,
    parameters=(NAME,),
    bodies=json_body(on=Switch(True), off=Switch(False)),
    answers={200: Answer("The sound.", (ShownSound,), SHOWN)},
    faults=lambda: (fault_of(decode, _SWITCH, b"[]"), UNKNOWN, NOT_LEARNT, DOWN, 500),
)
async def switch_sound(call: Call, context: OwnSoundContext) -> Reply:
    """Switch an own sound on or off.

    Sessions and jobs created from then on report a sound that is on, beside the model's. Other nodes follow within
    {key_cache_seconds} s.
    """
    principal = await context.project_keys.authenticate(call)
    switch = decode(_SWITCH, await call.body(SMALL_BODY, holder_of(principal)))
    sound = await context.sounds.switch(principal.project, call.path("name"), switch.on)
    return _changed(context, principal, ShownSound.of(sound))


@operation(
    "POST /own_sounds/{name}/learn",
    key=PROJECT_KEY,
    parameters=(NAME,),
    answers={200: Answer("The sound.", (ShownSound,), SHOWN)},
    faults=(BadRequest("3 passages are marked as the sound, and 10 are needed: mark more of them"), UNKNOWN, DOWN, 500),
)
async def learn_sound(call: Call, context: OwnSoundContext) -> Reply:
    """Learn an own sound.

    Needs ten marked passages or more; takes some seconds. If the sound is on, sessions and jobs created from then on
    use the new version.
    """
    principal = await context.project_keys.authenticate(call)
    sound = await context.sounds.learn(principal.project, call.path("name"))
    log.info("sound learnt", project=principal.project, marks=len(sound.marks))
    return _changed(context, principal, ShownSound.of(sound))


@operation(
    "DELETE /own_sounds/{name}",
    key=PROJECT_KEY,
    parameters=(NAME,),
    answers={204: Answer("Deleted.")},
    faults=(UNKNOWN, DOWN, 500),
)
async def delete_sound(call: Call, context: OwnSoundContext) -> Reply:
    """Delete an own sound.

    With its marks and what was learnt from them. Open sessions report it to their end.
    """
    principal = await context.project_keys.authenticate(call)
    await context.sounds.remove(principal.project, call.path("name"))
    context.changed_keys.project(principal.project)
    return NO_CONTENT


@operation(
    "DELETE /own_sounds/{name}/marks/{mark}",
    key=PROJECT_KEY,
    parameters=(NAME, Parameter("mark", "path", str, "Id of the mark.", True, MARK)),
    answers={204: Answer("Deleted.")},
    faults=(NotFound("the sound has no such mark"), DOWN, 500),
)
async def delete_mark(call: Call, context: OwnSoundContext) -> Reply:
    """Delete a mark.

    Has no effect until the sound is learnt again.
    """
    principal = await context.project_keys.authenticate(call)
    await context.sounds.unmark(principal.project, call.path("name"), call.path("mark"))
    return NO_CONTENT


@_marking("POST /own_sounds/{name}/jobs/{job_id}", IN_JOB)
async def mark_in_job(call: Call, context: OwnSoundContext) -> Reply:
    """Mark a passage of a job's recording.

    {MARKING}
    """
    return await _mark(call, context, _job_embeddings)


@_finding("GET /own_sounds/{name}/jobs/{job_id}", IN_JOB)
async def find_in_job(call: Call, context: OwnSoundContext) -> Reply:
    """Look for a sound in a job's recording.

    {FINDING}
    """
    return await _find(call, context, _job_embeddings)


@_marking("POST /own_sounds/{name}/sessions/{session_id}", IN_SESSION)
async def mark_in_session(call: Call, context: OwnSoundContext) -> Reply:
    """Mark a passage of a session.

    {MARKING}
    """
    return await _mark(call, context, _session_embeddings)


@_finding("GET /own_sounds/{name}/sessions/{session_id}", IN_SESSION)
async def find_in_session(call: Call, context: OwnSoundContext) -> Reply:
    """Look for a sound in a session.

    {FINDING}
    """
    return await _find(call, context, _session_embeddings)


#: Returns the stored embeddings of the session or job in the path, if it belongs to the project.
EmbeddingsOf = Callable[[Call, OwnSoundContext, Principal], KeptEmbeddings]


def _session_embeddings(call: Call, context: OwnSoundContext, principal: Principal) -> KeptEmbeddings:
    session = call.path("session_id")
    view = context.sessions.view(session) if is_id(session) else None
    if view is None or view.opened.project != principal.project:
        raise NotFound(NO_SUCH)
    return of_session(context, session, view)


def _job_embeddings(call: Call, context: OwnSoundContext, principal: Principal) -> KeptEmbeddings:
    job = call.path("job_id")
    view = context.jobs.view(job) if is_id(job) else None
    if view is None or view.accepted.project != principal.project:
        raise NotFound(NO_SUCH)
    return of_job(context, job, view)


async def _mark(call: Call, context: OwnSoundContext, embeddings_of: EmbeddingsOf) -> Reply:
    principal = await context.project_keys.authenticate(call)
    new = decode(_MARK, await call.body(SMALL_BODY, holder_of(principal)))
    kept = embeddings_of(call, context, principal)
    start_ms, end_ms = round(1000 * new.start), round(1000 * new.end)
    embeddings = kept.passage(start_ms, end_ms)
    mark = Mark(new_id(), kept.job, kept.id, start_ms, end_ms, new.right, kept.graph, embeddings)
    return json_reply(ShownSound.of(await context.sounds.mark(principal.project, call.path("name"), mark)), 201)


async def _find(call: Call, context: OwnSoundContext, embeddings_of: EmbeddingsOf) -> Reply:
    principal = await context.project_keys.authenticate(call)
    first_s = FROM.read(query_parameters(call.scope))
    sound = await context.sounds.learnt(principal.project, call.path("name"))
    kept = embeddings_of(call, context, principal)
    return json_reply(await find(context, holder_of(principal), kept, sound, 1000 * first_s // kept.step_ms))


async def find(context: OwnSoundContext, holder: Holder, kept: KeptEmbeddings, sound: OwnSound, first: int) -> Findings:
    """Return where a sound would be reported, from window `first` on.

    Raises:
        NotFound: the embeddings are of another model.
    """
    if kept.graph != sound.graph:
        raise NotFound(OTHER_MODEL)
    renderer = WindowRenderer([sound.name])
    found: list[FoundPassage] = []
    scored = (
        (start, list(renderer.reported_tags(context.sounds.scores(sound, _filled(rows), kept.recording))))
        for start, rows in kept.read(first, kept.windows)
    )
    async with aclosing(context.turns.each(holder, scored)) as reading:
        async for start, reported in reading:
            for window, tags in enumerate(reported, start):
                if not tags:
                    continue
                begins, probability = window * kept.step_ms / 1000, renderer.named(tags)[0].probability
                ends = begins + kept.window_ms / 1000
                if found and begins <= found[-1].end:
                    found[-1] = FoundPassage(found[-1].start, ends, max(probability, found[-1].probability))
                elif len(found) == MOST_FOUND:
                    return Findings(sound.name, found, (window - first) * kept.step_ms / 1000, more=True)
                else:
                    found.append(FoundPassage(begins, ends, probability))
    covered = max(0, kept.windows - 1 - first) * kept.step_ms + kept.window_ms
    return Findings(sound.name, found, covered / 1000 if first < kept.windows else 0.0)


def _filled(rows: list[bytes]) -> bytes:
    """Concatenate the embeddings, with zeros for missing ones."""
    size = max(map(len, rows), default=0)
    return b"".join([row or bytes(size) for row in rows])


def _changed(context: OwnSoundContext, principal: Principal, sound: ShownSound) -> Reply:
    # The next session or job on this node sees the change; other nodes cache verdicts on keys for a while.
    context.changed_keys.project(principal.project)
    return json_reply(sound)
