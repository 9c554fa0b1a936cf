"""Checks answers of the service against its document, and records the operations and statuses seen."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2
import jsonschema_rs
import msgspec

from app.documents.build import everything
from app.options import EdgeOptions
from tests.contract.accounting import met

C = TypeVar("C", bound=httpx2.Client)

#: The document of a default deployment, with the operator's interface.
DOCUMENT: Final[dict[str, Any]] = everything(EdgeOptions(bytes(16), Path()), with_operator=True)
#: Headers that no operation describes: those of HTTP, of the connection, of CORS.
ANY: Final = re.compile(
    r"date|connection|content-(type|length|encoding)|transfer-encoding|cache-control|vary|access-control-.*|"
    r"x-(content-type-options|accel-buffering|frame-options)|(referrer|permissions|cross-origin-.*)-policy|allow|"
    r"upgrade|sec-websocket-.*"
)
#: Answers common to all operations, or given before them (`info.description`).
BEFORE: Final = frozenset({404, 405, 408, 413, 415, 431, 501, 503})


def watched(client: C) -> C:
    """Return a client that checks all answers against the document."""
    client.event_hooks = {"request": [], "response": [_hold]}
    return client


def promised() -> set[tuple[str, int]]:
    return {
        (operation["operationId"], int(status)) for _, operation in _operations() for status in operation["responses"]
    }


def hold_event(name: str, data: Any, path: str = "/api/v1/jobs/{job_id}/stream") -> None:
    """Check the data of a stream's event, by default that of a job."""
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]
    _validate(content["text/event-stream"]["x-events"][name], data)


def operation_at(method: str, path: str) -> dict[str, Any] | None:
    """Return the operation for a request; None if none matches."""
    for candidate in (path, path.removeprefix("/sense/api/v1")):
        for (template, one), operation in _operations():
            if one == method.replace("HEAD", "GET").lower() and _pattern(template).fullmatch(candidate):
                return operation
    return None


def _hold(answer: httpx2.Response) -> None:
    request = answer.request
    path = request.url.raw_path.decode("ascii").partition("?")[0]
    operation = operation_at(request.method, path)
    if operation is None:
        assert answer.status_code in BEFORE | {400}, f"{request.method} {path} is in no document: {answer.status_code}"
        return
    met.add((operation["operationId"], answer.status_code))
    where = f"{operation['operationId']} {answer.status_code}"
    described = operation["responses"].get(str(answer.status_code))
    if described is None:
        assert answer.status_code in BEFORE, f"{where} is in no document"
        return
    names = {name.lower() for name in described.get("headers", ())}
    surplus = {name for name in answer.headers if name not in names and not ANY.fullmatch(name)}
    assert not surplus, f"{where} has headers that the document does not know: {surplus}"
    content = described.get("content", {})
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if not content:
        assert not kind, f"{where} has a body of {kind}"
    if not content or request.method == "HEAD":
        return
    assert kind in content, f"{where} is {kind}"
    if kind == "application/json":
        answer.read()
        _validate(content[kind]["schema"], msgspec.json.decode(answer.content), where)


@cache
def _operations() -> tuple[tuple[tuple[str, str], dict[str, Any]], ...]:
    # Paths without parameters first.
    paths = sorted(DOCUMENT["paths"].items(), key=lambda entry: "{" in entry[0])
    return tuple(
        ((path, method), operation)
        for path, item in paths
        for method, operation in item.items()
        if isinstance(operation, dict)
    )


@cache
def _pattern(template: str) -> re.Pattern[str]:
    # The operator's references may contain slashes, and so may file names, one of which is empty.
    pieces = re.split(r"\{\w+\}", template)
    inside = {"admin": ".+", "dashboard": ".*"}.get(template.split("/")[1], "[^/]+")
    return re.compile(inside.join(map(re.escape, pieces)))


def _validate(schema: Mapping[str, Any], content: Any, where: str = "") -> None:
    error = next(_validator(msgspec.json.encode(schema)).iter_errors(content), None)
    assert error is None, f"{where}: {error}"


@cache
def _validator(schema: bytes) -> Any:
    whole = {**msgspec.json.decode(schema), "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
