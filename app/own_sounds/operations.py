"""Operations on a project's own sounds: mark, learn, try on stored audio, switch on."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec
import structlog

from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.queries import IntegerParameter, query_parameters
from app.http.replies import NO_CONTENT, Reply, json_reply
from app.http.turns import holder_of
from app.own_sounds.kept_embeddings import KeptEmbeddings, of_job, of_session
from app.own_sounds.own_sound_bodies import Findings, FoundPassage, NewMark, ShownSound, SoundList, Switch
from app.own_sounds.own_sound_context import OwnSoundContext
from app.scores import TagRenderer
from topics.errors import NotFound
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


async def list_sounds(call: Call, context: OwnSoundContext) -> Reply:
    """GET /api/v1/own_sounds: the sounds of the project, with their marks and figures."""
    principal = await context.project_keys.authenticate(call)
    return json_reply(SoundList([ShownSound.of(sound) for sound in await context.sounds.sounds(principal.project)]))


async def switch_sound(call: Call, context: OwnSoundContext) -> Reply:
    """PATCH /api/v1/own_sounds/{name}: report it in new sessions and jobs, or stop reporting it."""
    principal = await context.project_keys.authenticate(call)
    switch = decode(_SWITCH, await call.body(SMALL_BODY, holder_of(principal)))
    sound = await context.sounds.switch(principal.project, call.path("name"), switch.on)
    return _changed(context, principal, ShownSound.of(sound))


async def learn_sound(call: Call, context: OwnSoundContext) -> Reply:
    """POST /api/v1/own_sounds/{name}/learn: learn it from its marks; takes some seconds."""
    principal = await context.project_keys.authenticate(call)
    sound = await context.sounds.learn(principal.project, call.path("name"))
    log.info("sound learnt", project=principal.project, marks=len(sound.marks))
    return _changed(context, principal, ShownSound.of(sound))


async def delete_sound(call: Call, context: OwnSoundContext) -> Reply:
    """DELETE /api/v1/own_sounds/{name}: also deletes its marks; earlier reports stay."""
    principal = await context.project_keys.authenticate(call)
    await context.sounds.remove(principal.project, call.path("name"))
    context.changed_keys.project(principal.project)
    return NO_CONTENT


async def delete_mark(call: Call, context: OwnSoundContext) -> Reply:
    """DELETE /api/v1/own_sounds/{name}/marks/{mark}."""
    principal = await context.project_keys.authenticate(call)
    await context.sounds.unmark(principal.project, call.path("name"), call.path("mark"))
    return NO_CONTENT


async def mark_in_session(call: Call, context: OwnSoundContext) -> Reply:
    """POST /api/v1/own_sounds/{name}/sessions/{id}: mark a passage of a session."""
    return await _mark(call, context, _session_embeddings)


async def mark_in_job(call: Call, context: OwnSoundContext) -> Reply:
    """POST /api/v1/own_sounds/{name}/jobs/{id}: mark a passage of a job's recording."""
    return await _mark(call, context, _job_embeddings)


async def find_in_session(call: Call, context: OwnSoundContext) -> Reply:
    """GET /api/v1/own_sounds/{name}/sessions/{id}: where it would be reported in a session."""
    return await _find(call, context, _session_embeddings)


async def find_in_job(call: Call, context: OwnSoundContext) -> Reply:
    """GET /api/v1/own_sounds/{name}/jobs/{id}: where it would be reported in a job's recording."""
    return await _find(call, context, _job_embeddings)


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
    renderer = TagRenderer([sound.name], 0, {})
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
                begins, probability = window * kept.step_ms / 1000, renderer.probability_of(tags[0])
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
