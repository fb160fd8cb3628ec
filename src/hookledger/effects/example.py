"""An example of a type as JSON: the form in which an operator types a value of it."""

from __future__ import annotations

from typing import Any

from msgspec import inspect

DEEPEST = 4
"""Levels of an example: a type may contain itself."""

_EXAMPLES: dict[type[inspect.Type], Any] = {
    inspect.BoolType: True,
    inspect.IntType: 0,
    inspect.FloatType: 0.0,
    inspect.StrType: "text",
    inspect.BytesType: "",
    inspect.ByteArrayType: "",
    inspect.MemoryViewType: "",
    inspect.DecimalType: "0.00",
    inspect.DateTimeType: "2027-01-31T09:00:00Z",
    inspect.DateType: "2027-01-31",
    inspect.TimeType: "09:00:00",
    inspect.TimeDeltaType: "PT60S",
    inspect.UUIDType: "00000000-0000-0000-0000-000000000000",
}


def example(kind: Any) -> Any:
    """A value of this type as JSON has it, with the fields that it needs, or all where it needs none; null only where
    nothing else is known. Limits of numbers and texts are not looked at."""
    info = inspect.type_info(kind)
    if isinstance(info, inspect.UnionType):
        info = next(one for one in info.types if not isinstance(one, inspect.NoneType))
    return _example(info, DEEPEST)


def _example(info: inspect.Type, levels: int) -> Any:
    if type(info) in _EXAMPLES:
        return _EXAMPLES[type(info)]
    match info:
        case inspect.EnumType(cls=enum):
            return next((member.value for member in enum), None)
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.UnionType(types=types, includes_none=False):
            return _example(types[0], levels)
        case inspect.Metadata(type=inner):
            return _example(inner, levels)
    return _compound(info, levels - 1) if levels else None


def _compound(info: inspect.Type, levels: int) -> Any:
    match info:
        case inspect.TupleType(item_types=items):
            return [_example(item, levels) for item in items]
        case inspect.CollectionType(item_type=item):
            return [] if (value := _example(item, levels)) is None else [value]
        case inspect.DictType(key_type=key, value_type=value):
            return {str(_example(key, levels) or "text"): _example(value, levels)}
        case inspect.NamedTupleType(fields=fields) | inspect.StructType(fields=fields, array_like=True):
            return [_example(field.type, levels) for field in fields]
        case inspect.StructType(fields=fields, tag_field=name, tag=tag) if name is not None:
            return {name: tag, **_object(fields, levels)}
        case (
            inspect.StructType(fields=fields)
            | inspect.DataclassType(fields=fields)
            | inspect.TypedDictType(fields=fields)
        ):
            return _object(fields, levels)
    return None


def _object(fields: tuple[inspect.Field, ...], levels: int) -> dict[str, Any]:
    needed = [field for field in fields if field.required] or fields
    return {field.encode_name: _example(field.type, levels) for field in needed}
