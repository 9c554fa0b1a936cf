"""The interface as OpenAPI 3.1, built from the routes, their descriptions, and the types that validate requests.

https://spec.openapis.org/oas/v3.1.1. Extensions (`x-`) hold what 3.1 cannot express: the origin of an operation, the
limits of the deployment, and the data of server-sent events.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from app.http.bodies import SMALL_BODY, too_long
from app.http.descriptions import JSON, Answer, Body, Description, Fault, Form, Key, Operation, Parameter, TooLong
from app.http.operation import error_reply
from app.http.queries import IntegerParameter
from app.http.replies import Reply, phrase
from app.http.resource import Part
from app.identity.keys import ORGANIZATION, PROJECT
from app.shared_descriptions import KEY_FAULTS

Json = dict[str, Any]
Limits = Mapping[str, int | float | bool]

#: Version of the description, by Semantic Versioning: an addition raises the second number.
VERSION: Final = "1.0.0"
#: The contract's own version of the session interface.
SESSIONS_VERSION: Final = "1.1.0"
REFERENCE: Final = "#/components/schemas/"
HEADERS: Final = {
    "x-request-id": "Identifies the request in the service's log: the client's own id, or a new one.",
    "retry-after": "Nothing was accepted; retry after this many seconds.",
    "earshot-reason": "What is wrong with the audio, or the limit the body exceeds.",
    "x-should-retry": "`false`: a retry would end the same way, or a write may still succeed.",
    "earshot-job": "The job behind the answer: `/api/v1/jobs/{job_id}` has all of it.",
    "content-range": "Total number of bytes.",
    "www-authenticate": "The scheme of the key.",
}
AS_OF: Final = "Only of an answer by a stand-by, while the owner is away: a time up to which it knows everything."
#: Bodies that are raw files.
BINARY: Final[Json] = {"type": "string", "format": "binary"}
#: Headers that the documents omit.
PLAIN: Final = frozenset({"content-type", "content-length", "connection", "sec-websocket-version"})
TEXT: Final = """\
{what}

- **Keys** are in headers and are checked first.
- **Bodies** are UTF-8. Unknown fields are ignored, unless a schema forbids them. Integers are \
written without a fraction; only `samplerate` may end in `.0`.
- **503** can answer any request: a queue is full, a limit is reached, or a node is being replaced. Nothing was \
accepted; send the same request again after `Retry-After` seconds. The exception has `X-Should-Retry: false`: the \
write may still succeed, so repeat it only with an `Idempotency-Key` or a chunk's number.
- **404** and **405** for an unknown path or method have the error format of that part of the interface. HEAD works \
wherever GET does.
- **415**: the body has a `Content-Encoding`. Send it plain.
- **400** for a request without `Host`, **408, 413, 431**, **501** for a `Transfer-Encoding` other than `chunked`, and \
503 for too many connections can come before a request reaches its operation. They are always a GenericError, and \
close the connection.
- Every other error has an `X-Request-Id`: the client's own, or a new one.
- `x-origin` says where an operation comes from: `contract`, the vendor's later `public-clients`, or `earshot` alone.
- Limits are those of this deployment."""


def _title(name: str) -> str:
    return "ETag" if name == "etag" else "-".join(word.capitalize() for word in name.split("-"))


SCHEMES: Final[Json] = {
    "projectKey": {
        "type": "apiKey",
        "in": "header",
        "name": _title(PROJECT.header.decode("ascii")),
        "description": "The key of a project. A change takes effect within {key_cache_seconds} s.",
    },
    "organizationKey": {
        "type": "apiKey",
        "in": "header",
        "name": _title(ORGANIZATION.header.decode("ascii")),
        "description": "The key of an organization.",
    },
    "projectBearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "The key of a project, as OpenAI's clients send theirs.",
    },
    "operatorKey": {"type": "http", "scheme": "bearer", "description": "The key of the operator."},
}


def document(parts: Sequence[Part[Any]], limits: Limits, title: str, text: str, version: str) -> Json:
    """Return the document of some parts of the interface, for a deployment with these limits."""
    return _Writer(parts, limits).document(title, text, version)


def message(error: Any) -> str:
    """Return the text of an error of any part of the interface."""
    said = error["error"] if isinstance(error, dict) else error
    return str(said["message"] if isinstance(said, dict) else said)


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


class _Writer:
    def __init__(self, parts: Sequence[Part[Any]], limits: Limits) -> None:
        self._parts = parts
        self._limits = limits
        #: Types that the document refers to and, once all are known, their schemas in the same order.
        self._types: list[Any] = []
        self._schemas: Sequence[Json] = ()
        self._schemes: set[str] = set()

    def document(self, title: str, text: str, version: str) -> Json:
        # Run twice: the first pass collects the types.
        self._paths()
        self._schemas, components = msgspec.json.schema_components(self._types, ref_template=REFERENCE + "{name}")
        self._types.clear()
        paths, tags = self._paths(), {part.name: part.text for part in self._parts}
        return {
            "openapi": "3.1.0",
            "info": {
                "title": title,
                "version": version,
                "summary": text,
                "description": TEXT.format(what=text),
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/", "description": "Where this document is from."}],
            "tags": [{"name": name, "description": text} for name, text in tags.items()],
            "paths": paths,
            "components": {
                "schemas": {name: _plain(schema) for name, schema in sorted(components.items())},
                "securitySchemes": {
                    name: {**scheme, "description": self._filled(scheme["description"])}
                    for name, scheme in SCHEMES.items()
                    if name in self._schemes
                },
            },
            "x-limits": dict(self._limits),
        }

    def _paths(self) -> Json:
        paths: Json = defaultdict(dict)
        seen: set[str] = set()
        for part in self._parts:
            for route, row in part.table.items():
                for method, one in row.items():
                    path = part.prefix + re.sub(r":\w+\}", "}", route) + one.description.end
                    name = camel(one.name)
                    operation = self._operation(part, one, name)
                    if name in seen:  # another path of the same operation
                        summary = f"{operation['summary']} (another path)"
                        operation |= {"operationId": f"{name}Too", "summary": summary, "x-origin": "earshot"}
                    seen.add(name)
                    if method != "GET" and (busy := operation["responses"].get("503")):
                        busy["headers"]["X-Should-Retry"] = _header(HEADERS["x-should-retry"])
                    paths[path][method.lower()] = operation
                if part.alias:
                    paths[path]["servers"] = [
                        {"url": "/", "description": "Windows of 1 s every 0.5 s."},
                        {"url": part.alias, "description": "Windows of 2 s every 1 s."},
                    ]
        return dict(paths)

    def _operation(self, part: Part[Any], one: Operation[Any], name: str) -> Json:
        described = one.description
        operation: Json = {
            "operationId": name,
            "tags": [part.name],
            "summary": one.summary,
            "description": one.text(self._limits) or f"{one.summary}.",
            "x-origin": described.origin,
            "security": list(self._security(described)),
            "parameters": [self._parameter(parameter) for parameter in described.parameters],
        }
        if described.bodies:
            content = dict(map(self._body, described.bodies))
            operation["requestBody"] = {"required": True, "content": content}
        operation["responses"] = self._responses(part, one)
        return operation

    def _security(self, described: Description) -> Iterator[Json]:
        key = described.key
        if key is not None and self._is_needed(key):
            self._schemes.add(key.scheme)
            yield {key.scheme: []}
            if key.optional:
                yield {}

    def _is_needed(self, key: Key) -> bool:
        return not key.only_with or bool(self._limits[key.only_with])

    def _parameter(self, parameter: Parameter) -> Json:
        schema = self._parameter_schema(parameter)
        written: Json = {
            "name": parameter.name,
            "in": parameter.place,
            "description": parameter.text,
            "required": parameter.required,
            "schema": schema if parameter.default is None else {**schema, "default": parameter.default},
        }
        if parameter.example is not None:
            written["example"] = parameter.example
        return written

    def _parameter_schema(self, parameter: Parameter) -> Json:
        kind = parameter.type
        if not isinstance(kind, IntegerParameter):
            return self._schema(kind)
        schema: Json = {"type": "integer", "minimum": kind.lowest, "maximum": kind.highest}
        return schema if kind.default is None else {**schema, "default": kind.default}

    def _body(self, body: Body | Form) -> tuple[str, Json]:
        """Return the media type and the schema of a body."""
        if isinstance(body, Body):
            return JSON, {"schema": self._schema(body.type), "examples": _examples(body.examples)}
        properties, encoding = {}, {}
        for name, part in body.parts.items():
            if part.type is bytes:
                schema: Json = BINARY
            else:
                schema = self._schema(part.type)
                if "$ref" in schema:
                    encoding[name] = {"contentType": "application/json"}
            properties[name] = {**schema, "description": part.text}
        schema = {
            "type": "object",
            "properties": properties,
            "required": [name for name, part in body.parts.items() if part.required],
        }
        media: Json = {"schema": schema, "examples": _examples(body.examples)}
        return "multipart/form-data", {**media, "encoding": encoding} if encoding else media

    def _responses(self, part: Part[Any], one: Operation[Any]) -> Json:
        responses: Json = {}
        for status, answers in one.answers.items():
            responses[str(status)] = self._answer(answers if isinstance(answers, tuple) else (answers,))
            if one.description.standby:
                responses[str(status)].setdefault("headers", {})["Earshot-As-Of"] = _header(AS_OF)
        for fault in (*self._implied(one.description), *one.faults):
            reply = self._reply(part, fault)
            response = responses.setdefault(str(reply.status), {"description": phrase(reply.status)})
            self._add_fault(part, response, reply)
        return dict(sorted(responses.items()))

    def _implied(self, described: Description) -> Iterator[Fault]:
        """Yield the errors that follow from the key and the body."""
        key = described.key
        if key is not None and self._is_needed(key):
            yield from KEY_FAULTS.get(key.scheme, ())[key.optional :]
        if any(isinstance(body, Body) and body.small for body in described.bodies):
            yield too_long(SMALL_BODY)

    def _answer(self, answers: Iterable[Answer]) -> Json:
        response: Json = {}
        for answer in answers:
            response.setdefault("description", answer.text)
            if answer.headers:
                response["headers"] = {name: _header(text) for name, text in answer.headers.items()}
            if not answer.types:
                continue
            schemas = [BINARY if kind is bytes else self._schema(kind) for kind in answer.types]
            media: Json = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
            if answer.examples:
                media["examples"] = _examples(answer.examples)
            if answer.events:
                media["x-events"] = {name: self._schema(kind) for name, kind in answer.events.items()}
            response.setdefault("content", {})[answer.media] = media
        return response

    def _reply(self, part: Part[Any], fault: Fault) -> Reply:
        if isinstance(fault, TooLong):
            fault = too_long(int(self._limits[fault.limit]))
        if isinstance(fault, Reply):
            return fault
        return part.error(fault, None) if isinstance(fault, int) else error_reply(part.error, fault)

    def _add_fault(self, part: Part[Any], response: Json, reply: Reply) -> None:
        """Add an error as it is sent to the response of its status."""
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in reply.headers}
        for name in (*headers, "x-request-id"):
            if name not in PLAIN:
                response.setdefault("headers", {})[_title(name)] = _header(HEADERS[name])
        kind = headers["content-type"].partition(";")[0]
        media = response.setdefault("content", {}).setdefault(kind, {})
        if kind == JSON:
            content = msgspec.json.decode(reply.body)
            schema = self._schema(part.faults.get(reply.status, part.faults[0]))
        else:
            content, schema = reply.body.decode(), self._schema(str)
        if "schema" not in media:
            media["schema"] = schema
        elif media["schema"] != schema and schema not in media["schema"].get("anyOf", ()):
            media["schema"] = {"anyOf": [*media["schema"].get("anyOf", [media["schema"]]), schema]}
        name = message(content)
        media.setdefault("examples", {})[_slug(name)] = {"value": content}

    def _schema(self, kind: Any) -> Json:
        self._types.append(kind)
        return _plain(self._schemas[len(self._types) - 1]) if self._schemas else {}

    def _filled(self, text: str) -> str:
        return text.format_map(self._limits)


def _plain(schema: Any) -> Any:
    """Return a schema that all readers understand alike: whole numbers are integers, enums have a type."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(value) for name, value in schema.items()}
    if plain.get("type") == "number" and plain.get("multipleOf") == 1:
        del plain["multipleOf"]
        plain["type"] = "integer"
    if plain.get("type") == "integer":
        if "exclusiveMinimum" in plain:
            plain["minimum"] = plain.pop("exclusiveMinimum") + 1
        if "exclusiveMaximum" in plain:
            plain["maximum"] = plain.pop("exclusiveMaximum") - 1
    if plain.get("type") == "number":
        plain["format"] = "double"
    if plain.get("default", "") is None:
        del plain["default"]  # generators take it for a value
    if "enum" in plain and all(isinstance(one, str) for one in plain["enum"]):
        plain["type"] = "string"
    return plain


def _examples(examples: Mapping[str, Any]) -> Json:
    return {name: {"value": _example(value)} for name, value in examples.items()}


def _example(value: Any) -> Any:
    """Return an example as JSON, without fields at their defaults."""
    if isinstance(value, msgspec.Struct):
        fields = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        return {field.encode_name: _example(one) for field, one in fields if one is not field.default}
    if isinstance(value, list):
        return [_example(one) for one in value]
    if isinstance(value, dict):
        return {name: _example(one) for name, one in value.items()}
    return msgspec.to_builtins(value)


def _header(text: str) -> Json:
    return {"description": text, "schema": {"type": "string"}}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48]
