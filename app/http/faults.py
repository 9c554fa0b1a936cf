"""Faults of a JSON body by place; searched only after decoding has failed.

A msgspec struct is the schema of a body. Its decoder reports only the first fault, in a sentence. Here fields are
decoded one by one, so that every fault has a place and a kind. Only fields of the schema become objects: the objects of
arbitrary JSON can be many times its size.
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from functools import cache
from mmap import mmap
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, UNSET, Raw, UnsetType
from msgspec.inspect import (
    BoolType,
    FloatType,
    IntType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

Text = bytes | memoryview

#: Errors that decoders raise for bytes that are not JSON.
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: First half of a surrogate pair without its second half.
_HALF: Final = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F])")
#: Where a decoder has found a fault, and the bytes before and after it that are searched for the reason.
_PLACE: Final = re.compile(r"\(byte (\d+)\)")
AROUND: Final = 64
_DIGITS: Final = b"-0123456789"
#: For each type of a schema: its name in kinds of faults, and the first characters of its values.
_TYPES: Final[Mapping[type[Type], tuple[str, bytes]]] = {
    BoolType: ("bool", b"tf"),
    FloatType: ("float", _DIGITS),
    IntType: ("int", _DIGITS),
    StrType: ("string", b'"'),
    StructType: ("model", b"{"),
}


class BodyFault(msgspec.Struct, frozen=True):
    """A fault at one place of a body."""

    #: Names of fields, outermost first; empty for the body itself.
    place: tuple[str, ...]
    #: By pydantic's names, which other services use too: `missing`, `extra_forbidden`, `json_invalid`, `int_type`, ...
    kind: str
    message: str


def why_not_json(text: Text | mmap, error: Exception) -> str:
    """Return why a text is not JSON: msgspec's `error`, or plainer words for the most common mistakes."""
    if text[:3] == codecs.BOM_UTF8 or text[:2] in _MARKS:
        return "it begins with a byte order mark, send UTF-8 without one"
    said = str(error)
    if "surrogate" in said or "truncated" in said:
        place = _PLACE.search(said)
        at = len(text) if place is None else int(place[1])
        if (half := _HALF.search(bytes(text[max(0, at - AROUND) : at + AROUND]))) is not None:
            return f"{half[1].decode('ascii')} is half of a surrogate pair, send the other half too"
    return said


def faults(schema: Any, text: Text, place: tuple[str, ...] = ()) -> Iterator[BodyFault]:
    """Yield the faults that keep JSON from being decoded as `schema`; nothing if it can be decoded."""
    try:
        msgspec.json.decode(text, type=schema)
    except msgspec.ValidationError as error:
        try:
            fields = _fields(schema, text)
        except NOT_JSON as failure:
            # A decoder stops at an unknown field, and what follows may be no JSON.
            yield _not_json(text, failure, place)
            return
        if fields is None:
            yield BodyFault(place, _kind(schema, text), str(error))
        else:
            yield from _field_faults(schema, fields, place)
    except NOT_JSON as error:
        yield _not_json(text, error, place)


def _not_json(text: Text, error: Exception, place: tuple[str, ...]) -> BodyFault:
    return BodyFault(place, "json_invalid", f"JSON decode error: {why_not_json(text, error)}")


def _field_faults(
    schema: type[msgspec.Struct], fields: Mapping[str, Text], place: tuple[str, ...]
) -> Iterator[BodyFault]:
    unknown = dict(fields)
    for field in msgspec.structs.fields(schema):
        name = field.encode_name
        text = unknown.pop(name, None)
        if text is not None:
            yield from faults(field.type, text, (*place, name))
        elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
            yield BodyFault((*place, name), "missing", "required")
    for name in unknown:
        yield BodyFault((*place, name), "extra_forbidden", "unknown field")


def _fields(schema: Any, text: Text) -> Mapping[str, Text] | None:
    """Return the fields of a struct as raw JSON, or None; includes unknown fields only if they are forbidden.

    Raises one of `NOT_JSON` if the text is not JSON.
    """
    if not (isinstance(schema, type) and issubclass(schema, msgspec.Struct)):
        return None
    fields: Mapping[str, Raw | UnsetType]
    try:
        if schema.__struct_config__.forbid_unknown_fields:
            fields = msgspec.json.decode(text, type=dict[str, Raw])
        else:
            fields = msgspec.structs.asdict(_unread(schema).decode(text))
    except msgspec.ValidationError:
        return None
    return {name: memoryview(value) for name, value in fields.items() if isinstance(value, Raw)}


@cache
def _unread(schema: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of the same fields, whose values stay raw JSON."""
    fields = [(field.encode_name, Raw | UnsetType, UNSET) for field in msgspec.structs.fields(schema)]
    return msgspec.json.Decoder(msgspec.defstruct(schema.__name__, fields))


def _kind(schema: Any, text: Text) -> str:
    """Return the kind of fault of a value without fields."""
    info = _undescribed(type_info(schema))
    if isinstance(info, UnionType):
        info = _undescribed(next(one for one in info.types if not isinstance(one, NoneType)))
    if type(info) not in _TYPES:
        return "value_error"
    name, beginnings = _TYPES[type(info)]
    if isinstance(info, FloatType) and info.multiple_of == 1:
        name = "int"  # 16000.0 is an integer in JSON, which has one type of number
    if text[0] in beginnings:
        if isinstance(info, StrType):
            return _string_kind(info, len(msgspec.json.decode(text, type=str)))
        if isinstance(info, IntType | FloatType):
            number = float(bytes(text))
            if info.gt is not None and number <= info.gt:
                return "greater_than"
            if info.lt is not None and number >= info.lt:
                return "less_than"
    return f"{name}_type"


def _undescribed(info: Type) -> Type:
    """Return a type without its documentation."""
    return _undescribed(info.type) if isinstance(info, Metadata) else info


def _string_kind(info: StrType, length: int) -> str:
    if info.max_length is not None and length > info.max_length:
        return "string_too_long"
    if info.min_length is not None and length < info.min_length:
        return "string_too_short"
    return "string_pattern_mismatch"
