"""OpenAPI 3.1 to 3.0, for older generators: https://spec.openapis.org/oas/v3.0.4.

Schemas of 3.0 follow JSON Schema draft 5, plus `nullable`. What they cannot express is left out.
"""

from typing import Any, Final

#: Keywords that distinguish a schema from other objects.
_WORDS: Final = frozenset({"type", "anyOf", "$ref", "enum"})
_NULL: Final = {"type": "null"}


def downgraded(document: dict[str, Any]) -> dict[str, Any]:
    """Return the same document as OpenAPI 3.0."""
    made: dict[str, Any] = _walked(document)
    info = {name: value for name, value in made["info"].items() if name != "summary"}
    info["license"] = {"name": info["license"]["name"]}
    return {**made, "openapi": "3.0.3", "info": info}


def _walked(node: Any, name: str = "") -> Any:
    if isinstance(node, list):
        return [_walked(one) for one in node]
    if not isinstance(node, dict) or name in ("value", "example", "default"):
        return node
    if _WORDS & node.keys() and name != "properties":
        node = _schema(node)
    return {key: _walked(value, key) for key, value in node.items()}


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    schema = {name: value for name, value in schema.items() if name != "contentEncoding"}
    if isinstance(choices := schema.get("anyOf"), list) and _NULL in choices:
        del schema["anyOf"]
        others = [one for one in choices if one != _NULL]
        one = {"anyOf": others} if len(others) > 1 else others[0]
        # The field's own keywords win.
        schema = {**one, **schema, "nullable": True}
        if "enum" in schema:
            # `nullable` adds no value to an enumeration (3.0.3, its proposal of 2019-10-31).
            schema["enum"] = [*schema["enum"], None]
    elif schema == _NULL:
        schema = {"type": "string", "enum": [None], "nullable": True}
    if schema.get("required") == []:
        del schema["required"]
    if len(schema) > 1 and (reference := schema.pop("$ref", None)) is not None:
        # A referenced schema does not allow null, and 3.0 has no better way to say that a value may be null.
        schema |= {"type": "object"} if "nullable" in schema else {"allOf": [{"$ref": reference}]}
    return schema
