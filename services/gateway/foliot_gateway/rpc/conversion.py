"""Structs to messages: a struct goes into the message of its name, each field into the field of its name.

The descriptor says how: literals become values of its enum, tuples and dictionaries repeat, and None stays out. If the
message lacks a field, that is an error when its struct is first seen. For all that is served, this is at the start.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from foliot_gateway.rpc import descriptors

Convert = Callable[[Any], Any]

_MOST: Final = (1 << 63) - 1
_AT_ONCE: Final = 100
"""Structs that protobuf is given in one call: 5 to 10 µs each. Nothing else of the gateway runs during a call."""
_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")


def make(struct: msgspec.Struct, new: Callable[..., Any]) -> Iterator[None]:
    """Makes the message of a struct, with the value of each field that is not None.

    It pauses after each entry of a list that is too long to be given at once.

    Parameters:
        new: makes the message, of the values of its fields.
    """
    large = {name: value for name in _nested(type(struct)) if _is_large(value := getattr(struct, name))}
    left_out = {name: () if isinstance(value, tuple) else None for name, value in large.items()}
    message = new(**fields_of(type(struct))(msgspec.structs.replace(struct, **left_out) if large else struct))
    for name, value in large.items():
        if isinstance(value, tuple):
            for each in value:
                yield from make(each, getattr(message, name).add)
                yield
        else:
            yield from make(value, into(getattr(message, name)))


def into(message: Any) -> Callable[..., Any]:
    """A function that gives a message its fields' values, and returns it."""

    def fill(**fields: Any) -> Any:
        message.MergeFrom(type(message)(**fields))
        return message

    return fill


@functools.cache
def _nested(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that hold structs."""
    fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return tuple(field.name for field in fields if _struct_in(getattr(field.type, "item_type", field.type)))


def _is_large(value: Any) -> bool:
    return next(itertools.islice(_each_in(value), _AT_ONCE, None), None) is not None


def _each_in(value: Any) -> Iterator[msgspec.Struct]:
    """The structs in a field that holds some, and those in them."""
    structs: tuple[msgspec.Struct, ...] = value if isinstance(value, tuple) else () if value is None else (value,)
    for struct in structs:
        yield struct
        for name in _nested(type(struct)):
            yield from _each_in(getattr(struct, name))


def _struct_in(of: msgspec.inspect.Type) -> type[msgspec.Struct] | None:
    """The struct that a type is, or may be."""
    kinds = of.types if isinstance(of, msgspec.inspect.UnionType) else (of,)
    return next((kind.cls for kind in kinds if isinstance(kind, msgspec.inspect.StructType)), None)


@functools.cache
def fields_of(kind: type[msgspec.Struct]) -> Callable[[msgspec.Struct], dict[str, Any]]:
    """A function that turns a struct into the arguments of its message.

    Raises:
        TypeError: the message lacks a field, or has an enum where the struct has any word.
        KeyError: the message is not there, or one of its enums lacks a word.
    """
    descriptor = descriptors.message(kind.__name__).DESCRIPTOR
    converts: list[tuple[str, Convert]] = []
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        of_message = descriptor.fields_by_name.get(field.name)
        if of_message is None:
            raise TypeError(f"the message {kind.__name__} has no field {field.name}")
        converts.append((field.name, _converter(of_message, field.type)))

    def convert(struct: msgspec.Struct) -> dict[str, Any]:
        return {name: change(value) for name, change in converts if (value := getattr(struct, name)) is not None}

    return convert


def _enum_name(descriptor: Any, word: str) -> str:
    """``admin-down`` of NicState is NIC_STATE_ADMIN_DOWN."""
    return f"{_CASE.sub('_', descriptor.name)}_{word.replace('-', '_')}".upper()


def _converter(field: Any, of: msgspec.inspect.Type) -> Convert:
    if isinstance(of, msgspec.inspect.VarTupleType):
        convert = _converter_of_one(field, of.item_type)
        return lambda values: [convert(value) for value in values]
    if isinstance(of, msgspec.inspect.DictType):
        convert = _converter_of_one(field.message_type.fields_by_name["value"], of.value_type)
        return lambda values: {name: convert(value) for name, value in values.items()}
    return _converter_of_one(field, of)


def _converter_of_one(field: Any, of: msgspec.inspect.Type) -> Convert:
    if (struct := _struct_in(of)) is not None:
        return fields_of(struct)
    if field.enum_type is not None:
        kinds = of.types if isinstance(of, msgspec.inspect.UnionType) else (of,)
        words = [word for kind in kinds if isinstance(kind, msgspec.inspect.LiteralType) for word in kind.values]
        if not words:
            raise TypeError(f"the field {field.full_name} is an enum, and its struct has any word there")
        known = field.enum_type.values_by_name
        return {word: known[_enum_name(field.enum_type, str(word))].number for word in words}.__getitem__
    if field.message_type is not None:
        if isinstance(of, msgspec.inspect.VarTupleType):  # a map's values cannot repeat, so a message holds them
            (name,) = field.message_type.fields_by_name
            return lambda values: {name: values}
        return _value
    if field.type == field.TYPE_INT64:
        return _int64
    return _as_it_is


def _int64(value: int) -> int:
    """The number for int64.

    A span may bear any time of 64 bits without a sign; one too large for int64 becomes its last.
    """
    return min(value, _MOST)


def _as_it_is(value: Any) -> Any:
    return value


def _value(value: Any) -> dict[str, Any]:
    """A Value or an AnyValue: the name of its field says its type. None is an empty one."""
    for kind, name, convert in _VALUES:
        if isinstance(value, kind):
            return {name: convert(value)}
    return {}


_VALUES: Final[tuple[tuple[type, str, Convert], ...]] = (
    (bool, "truth", _as_it_is),  # before int, which it is too
    (int, "integer", _int64),
    (float, "number", _as_it_is),
    (str, "text", _as_it_is),
    (list, "list", lambda values: {"values": [_value(each) for each in values]}),
    (dict, "map", lambda values: {"values": {name: _value(each) for name, each in values.items()}}),
)
