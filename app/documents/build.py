"""Builds each document, or reads a file of the page, by its name."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.documents import asyncapi, openapi
from app.documents.operations import DOCUMENTS, page_file
from app.http.resource import Part
from app.options import EdgeOptions
from app.parts import (
    ALARMS,
    DASHBOARD,
    JOBS,
    LIVE,
    OPENAI,
    OPERATOR,
    OWN_SOUNDS,
    PROJECTS,
    SERVICE,
    SERVICE_APART,
    SESSIONS,
    SOCKETS,
    SPEAKERS,
)


def build(name: str, options: EdgeOptions, with_operator: bool = False) -> bytes:
    """Return a document of `app.documents.operations`, or a file of its page."""
    if name.startswith("page."):
        return page_file(name)
    if name == "asyncapi":
        return encoded(asyncapi.document())
    return encoded(sessions(options) if name == "sessions" else everything(options, with_operator))


def everything(options: EdgeOptions, with_operator: bool = False) -> dict[str, Any]:
    """Return the document of the whole interface."""
    parts: list[Part[Any]] = [SESSIONS, SOCKETS, LIVE, JOBS, SPEAKERS, OPENAI, PROJECTS, OWN_SOUNDS, ALARMS]
    parts += [DASHBOARD] if options.dashboard else []
    parts += [SERVICE_APART if options.admin_apart else SERVICE, DOCUMENTS]
    parts += [OPERATOR] if with_operator else []
    text = "Sound analysis: audio in, live or whole; sound events, speech, summaries and speakers out."
    return openapi.document(parts, options.limits, "Earshot", text, openapi.VERSION)


def sessions(options: EdgeOptions) -> dict[str, Any]:
    text = "Audio in numbered chunks; windows of sound events out."
    return openapi.document((SESSIONS,), options.limits, "Audio sessions", text, openapi.SESSIONS_VERSION)


def encoded(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1)
