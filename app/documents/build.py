"""Builds each document, or reads a file of the page, by its name."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.documents import asyncapi, openapi
from app.documents.operations import page_file
from app.documents.parts import DASHBOARD, EVERYTHING, OPERATOR, SERVICE, SESSIONS
from app.options import EdgeOptions


def build(name: str, options: EdgeOptions, with_operator: bool = False) -> bytes:
    """Return a document of `app.documents.operations`, or a file of its page."""
    if name.startswith("page."):
        return page_file(name)
    if name == "asyncapi":
        return encoded(asyncapi.document())
    return encoded(sessions(options) if name == "sessions" else everything(options, with_operator))


def everything(options: EdgeOptions, with_operator: bool = False) -> dict[str, Any]:
    """Return the document of the whole interface."""
    parts = [part for part in EVERYTHING if options.dashboard or part is not DASHBOARD]
    if options.admin_apart:
        table = {path: row for path, row in SERVICE.table.items() if path != "/metrics"}
        parts[parts.index(SERVICE)] = msgspec.structs.replace(SERVICE, table=table)
    if with_operator:
        parts.append(OPERATOR)
    text = "Sound analysis: audio in, live or whole; sound events, speech, summaries and speakers out."
    return openapi.document(parts, options.limits, "Earshot", text, openapi.VERSION)


def sessions(options: EdgeOptions) -> dict[str, Any]:
    text = "Audio in numbered chunks; windows of sound events out."
    return openapi.document((SESSIONS,), options.limits, "Audio sessions", text, openapi.SESSIONS_VERSION)


def encoded(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1)
