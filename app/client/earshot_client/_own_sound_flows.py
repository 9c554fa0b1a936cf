"""Flows of requests about the project's own sounds."""

from collections.abc import Mapping

import msgspec

from ._calls import Call, Flow, Items, segment
from ._errors import OWN_SOUND_ERRORS, SoundNotFound
from ._json import done, fetch
from ._own_sound_values import FoundPassage, OwnSound


class _List(msgspec.Struct, frozen=True):
    sounds: tuple[OwnSound, ...]


class _Findings(msgspec.Struct, frozen=True):
    found: tuple[FoundPassage, ...]
    seconds: float
    more: bool = False


def sounds(key: str) -> Flow[tuple[OwnSound, ...]]:
    return (yield from fetch(_call("GET", key), _List, OWN_SOUND_ERRORS)).sounds


def mark(key: str, place: tuple[str, ...], start: float, end: float, right: bool) -> Flow[OwnSound]:
    """Mark a passage. A retry replaces the mark of the first try, because the passage is the same."""
    fields = {"start": start, "end": end, "right": right}
    return fetch(_call("POST", key, *place, fields=fields), OwnSound, OWN_SOUND_ERRORS)


def learn(key: str, name: str) -> Flow[OwnSound]:
    return fetch(_call("POST", key, name, "learn"), OwnSound, OWN_SOUND_ERRORS)


def switch(key: str, name: str, on: bool) -> Flow[OwnSound]:
    return fetch(_call("PATCH", key, name, fields={"on": on}), OwnSound, OWN_SOUND_ERRORS)


def find(key: str, place: tuple[str, ...], start: int) -> Flow[None]:
    """Yield where a sound would be reported, page by page."""
    while True:
        call = _call("GET", key, *place, query={"from": str(start)})
        page = yield from fetch(call, _Findings, OWN_SOUND_ERRORS)
        yield Items(page.found)
        if not page.more:
            return
        # A page ends between two passages. Windows last at least a second, so none of its last passage comes again.
        start += int(page.seconds)


def delete(key: str, name: str) -> Flow[None]:
    """Delete a sound. It is retried only if nothing was done: else a wrong name would look like a lost answer."""
    return done(_call("DELETE", key, name), OWN_SOUND_ERRORS, repeatable=False)


def delete_mark(key: str, name: str, mark_id: str) -> Flow[None]:
    """Delete a mark. A missing mark counts as deleted: the answer to an earlier try may have been lost."""
    try:
        yield from done(_call("DELETE", key, name, "marks", mark_id), OWN_SOUND_ERRORS)
    except SoundNotFound:
        return


def place(name: str, job_id: str | None, session_id: str | None) -> tuple[str, ...]:
    """Return the path of a sound in the audio of a job or session.

    Raises:
        ValueError: not exactly one of them is given.
    """
    match job_id, session_id:
        case str(), None:
            return name, "jobs", job_id
        case None, str():
            return name, "sessions", session_id
    raise ValueError("give either job_id or session_id")


def _call(method: str, key: str, *path: str, fields: object = None, query: Mapping[str, str] = {}) -> Call:
    address = "/".join(["/api/v1/own_sounds", *map(segment, path)])
    body = b"" if fields is None else msgspec.json.encode(fields)
    return Call(method, address, body, {"X-Api-Key": key, "Content-Type": "application/json"}, query)
