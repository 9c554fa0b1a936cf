"""Checks answers of the service against its document, and records the operations and statuses seen."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2
import jsonschema_rs
import msgspec
from starlette.testclient import TestClient

from app.documents.build import everything
from app.options import EdgeOptions
from tests.contract.accounting import met

C = TypeVar("C", httpx2.Client, httpx2.AsyncClient, TestClient)

OPTIONS: Final = EdgeOptions(secret=bytes(16), spool=Path())
#: The document of a default deployment, with the operator's interface.
DOCUMENT: Final[dict[str, Any]] = everything(OPTIONS, with_operator=True)
#: Headers that no operation describes: those of HTTP, of the connection, of CORS.
ANY: Final = re.compile(
    r"date|connection|content-(type|length|encoding)|transfer-encoding|cache-control|vary|access-control-.*|"
    r"x-(content-type-options|accel-buffering|frame-options)|(referrer|permissions|cross-origin-.*)-policy|allow|"
    r"upgrade|sec-websocket-.*"
)
#: Answers common to all operations, or given before them (`info.description`).
BEFORE: Final = frozenset({404, 405, 408, 413, 415, 431, 501, 503})


def watched(client: C, options: EdgeOptions = OPTIONS) -> C:
    """Return a client that checks all answers against the document of a deployment."""

    def hold(answer: httpx2.Response) -> None:
        request, body = answer.request, None
        if "x-earshot-forwarded" in request.headers:
            return  # Nodes answer each other with parts of lists, which are in no document.
        if answer.headers.get("content-type", "").startswith("application/json"):
            body = answer.read()
        path = request.url.raw_path.decode("ascii")
        hold_answer(request.method, path, answer.status_code, answer.headers, body, options)

    async def hold_read(answer: httpx2.Response) -> None:
        await answer.aread()
        hold(answer)

    hook = hold_read if isinstance(client, httpx2.AsyncClient) else hold
    client.event_hooks = {"request": [], "response": [hook]}
    return client


def hold_answer(
    method: str,
    path: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes | None,
    options: EdgeOptions = OPTIONS,
) -> None:
    """Check an answer; its body too, if it is JSON and was read to its end."""
    path = path.partition("?")[0]
    operation = operation_at(method, path, options)
    if operation is None:
        assert status in BEFORE | {400}, f"{method} {path} is in no document: {status}"
        return
    met.add((operation["operationId"], status))
    where = f"{operation['operationId']} {status}"
    described = operation["responses"].get(str(status))
    if described is None:
        assert status in BEFORE, f"{where} is in no document"
        return
    names = {name.lower() for name in described.get("headers", ())}
    surplus = {name for name in headers if name not in names and not ANY.fullmatch(name)}
    assert not surplus, f"{where} has headers that the document does not know: {surplus}"
    content = described.get("content", {})
    kind = headers.get("content-type", "").partition(";")[0]
    if not content:
        assert not kind, f"{where} has a body of {kind}"
    if not content or method == "HEAD":
        return
    assert kind in content, f"{where} is {kind}"
    if kind == "application/json" and body is not None:
        _validate(content[kind]["schema"], msgspec.json.decode(body), where)


def promised() -> set[tuple[str, int]]:
    return {
        (operation["operationId"], int(status))
        for _, operation in _operations(False, False)
        for status in operation["responses"]
    }


def hold_event(name: str, data: Any, path: str = "/api/v1/jobs/{job_id}/stream") -> None:
    """Check the data of a stream's event, by default that of a job."""
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]
    _validate(content["text/event-stream"]["x-events"][name], data)


def operation_at(method: str, path: str, options: EdgeOptions = OPTIONS) -> dict[str, Any] | None:
    """Return the operation for a request; None if none matches."""
    for candidate in (path, path.removeprefix("/sense/api/v1")):
        for (template, one), operation in _operations(options.job_reads_need_key, options.sessions_need_key):
            if one == method.replace("HEAD", "GET").lower() and _pattern(template).fullmatch(candidate):
                return operation
    return None


@cache
def _operations(
    job_reads_need_key: bool, sessions_need_key: bool
) -> tuple[tuple[tuple[str, str], dict[str, Any]], ...]:
    document = DOCUMENT
    if job_reads_need_key or sessions_need_key:
        keyed = {"job_reads_need_key": job_reads_need_key, "sessions_need_key": sessions_need_key}
        document = everything(msgspec.structs.replace(OPTIONS, **keyed), with_operator=True)
    # Paths without parameters first.
    paths = sorted(document["paths"].items(), key=lambda entry: "{" in entry[0])
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
