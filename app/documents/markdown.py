"""The interface as a Markdown page, `docs/interface.md`, generated from the OpenAPI document."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.documents.openapi import REFERENCE, message

_BOUNDS: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
)


def page(document: Mapping[str, Any]) -> str:
    return "\n".join(_lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield from (document["info"]["description"], "")
    for tag in document["tags"]:
        yield from (f"## {tag['name']}", "", tag["description"], "")
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if isinstance(operation, dict) and operation["tags"] == [tag["name"]]:
                    yield from _operation(path, method, operation)
    yield from ("## Types", "")
    for name, schema in document["components"]["schemas"].items():
        yield from _type(name, schema)
    yield from ("## Limits", "", "| limit | by default |", "| --- | --- |")
    for name, value in document["x-limits"].items():
        yield f"| `{name}` | {json.dumps(value)} |"


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"### {operation['summary']}", "", f"`{method.upper()} {path}` ({operation['x-origin']})", "")
    yield from (operation["description"], "")
    keys = [name for one in operation["security"] for name in one]
    if keys:
        yield from (f"Key: `{keys[0]}`{', optional' if {} in operation['security'] else ''}.", "")
    if operation["parameters"]:
        yield from ("| parameter | in | type | |", "| --- | --- | --- | --- |")
        for one in operation["parameters"]:
            name = f"`{one['name']}`{' (required)' if one['required'] else ''}"
            yield f"| {name} | {one['in']} | {_cell(_kind(one['schema']))} | {_cell(one['description'])} |"
        yield ""
    for media, content in operation.get("requestBody", {"content": {}})["content"].items():
        schema = content["schema"]
        yield from (f"Body: `{media}`" + (f", {_kind(schema)}." if "$ref" in schema else "."), "")
        if "$ref" not in schema:
            yield from _fields(schema)
        example = next(iter(content["examples"].values()))["value"]
        yield from ("```json", json.dumps(example, ensure_ascii=False), "```", "")
    yield from ("| status | body | |", "| --- | --- | --- |")
    for status, answer in operation["responses"].items():
        yield f"| {status} | {_cell(_bodies(answer))} | {_cell(_messages(int(status), answer))} |"
    yield ""


def _bodies(answer: Mapping[str, Any]) -> str:
    return "; ".join(
        _kind(content["schema"]) if media == "application/json" else f"`{media}`"
        for media, content in answer.get("content", {}).items()
    )


def _messages(status: int, answer: Mapping[str, Any]) -> str:
    """Return the text of an answer; for an error, its messages."""
    messages = []
    for content in answer.get("content", {}).values():
        for example in content.get("examples", {}).values():
            value = example["value"]
            if isinstance(value, dict) and value.get("error") and (status >= 400 or value.get("data", "") is None):
                messages.append(_code(message(value)))
    return ", ".join([answer["description"].rstrip("."), *messages]) if messages else answer["description"]


def _type(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"### {name}", "", schema.get("description", ""), "")
    if schema.get("properties"):
        yield from _fields(schema)
    elif "enum" in schema:
        yield from (_kind(schema), "")


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| field | type | |", "| --- | --- | --- |")
    for name, field in schema["properties"].items():
        needed = " (required)" if name in schema.get("required", ()) else ""
        yield f"| `{name}`{needed} | {_cell(_kind(field))} | {_cell(field.get('description', ''))} |"
    yield ""


def _kind(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REFERENCE)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [f"{name} `{schema[name]}`" for name in _BOUNDS if name in schema]
    return ", ".join([schema.get("type", "any"), *bounds])


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
