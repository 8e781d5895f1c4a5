"""A state as plain values in JSON, beside its tensors: what comes from another rank is data, and no code.

A pickle may run code of whoever wrote it, and any process that becomes a spare may write one. So only these come through,
by their exact classes: None, numbers, strings, bytes, lists, tuples, sets, maps of Python's own, and dtypes, shapes and
devices of PyTorch's. The states of PyTorch's modules, optimizers and schedules have nothing else.
"""

from __future__ import annotations

import base64
import collections
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_AS_THEY_ARE = frozenset({type(None), bool, int, float, str})
_DTYPES = {str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
_NAMES = {each: name for name, each in _DTYPES.items()}
_FACTORIES = {each.__name__: each for each in (bool, dict, float, int, list, set, str, tuple)}
"""Of what a `defaultdict` may make by itself."""
_METADATA = "_metadata"
"""The attribute of a module's state, which is a map of its parts' versions."""


_MOST_NUMBERS = 1 << 40
"""Of a tensor: more than any host has room for."""


class Slot(NamedTuple):
    """What a tensor is, without its numbers."""

    type: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, shape: list[int]) -> Slot:
        """The slot of a type's name and a shape.

        Raises:
            ValueError: no tensor has that shape.
        """
        if not all(type(size) is int and 0 <= size <= _MOST_NUMBERS for size in shape):
            raise ValueError(f"a tensor of the shape {shape}")
        if math.prod(shape) > _MOST_NUMBERS:
            raise ValueError(f"a tensor of {math.prod(shape)} numbers")
        return cls(_DTYPES[name], tuple(shape))


def taken_apart(states: Mapping[str, Any]) -> tuple[bytes, list[torch.Tensor]]:
    """States by their parts' names: all but the tensors, and these in their order.

    Raises:
        TypeError: a state has something that does not come through. The message names the part and the class.
    """
    tensors: list[torch.Tensor] = []
    said = {}
    for name, state in states.items():
        try:
            said[name] = _said(state, tensors)
        except TypeError as error:
            raise TypeError(
                f"the state of {name!r} cannot go to another rank: it has {error}. Tensors, numbers, strings, bytes and "
                "plain containers of them can"
            ) from None
    return json.dumps(said, separators=(",", ":"), check_circular=False).encode(), tensors


def slots(skeleton: bytes) -> list[Slot]:
    """The tensors that belong to what `taken_apart` has written, in their order.

    Raises:
        ValueError: it is nothing of the kind.
    """
    found: list[Slot] = []
    _read(skeleton, found.append)
    return found


def put_together(skeleton: bytes, tensors: Iterable[torch.Tensor]) -> dict[str, Any]:
    """The states that were taken apart, by their parts' names.

    Raises:
        ValueError: as `slots`.
    """
    following = iter(tensors)
    return _read(skeleton, lambda _: next(following))


def _said(part: Any, tensors: list[torch.Tensor]) -> Any:
    """A part of a state as JSON has it: a list is a list, and what JSON lacks a map of one entry, its kind.

    Raises:
        TypeError: it does not come through. The message is the class.
    """
    kind = type(part)
    if kind in _AS_THEY_ARE:
        return part
    if isinstance(part, torch.Tensor):
        tensors.append(part)
        return {"tensor": [_NAMES[part.dtype], [*part.shape]]}
    if kind is list:
        return [_said(each, tensors) for each in part]
    if (say := _SAID.get(kind)) is None:
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__}")
    return {kind.__name__: say(part, tensors)}


def _list_said(part: Iterable[Any], tensors: list[torch.Tensor]) -> list[Any]:
    return [_said(each, tensors) for each in part]


def _pairs_said(part: Mapping[Any, Any], tensors: list[torch.Tensor]) -> list[Any]:
    return [[_said(key, tensors), _said(value, tensors)] for key, value in part.items()]


def _ordered_said(part: collections.OrderedDict[Any, Any], tensors: list[torch.Tensor]) -> list[Any]:
    if others := vars(part).keys() - {_METADATA}:
        raise TypeError(f"an OrderedDict with an attribute {min(others)!r}")
    return [_pairs_said(part, tensors), _said(getattr(part, _METADATA, None), tensors)]


def _default_said(part: collections.defaultdict[Any, Any], tensors: list[torch.Tensor]) -> list[Any]:
    factory = part.default_factory
    name = getattr(factory, "__name__", "")
    if factory is not None and _FACTORIES.get(name) is not factory:
        raise TypeError(f"a defaultdict of {factory!r}")
    return [name, _pairs_said(part, tensors)]


_SAID: dict[type, Callable[[Any, list[torch.Tensor]], Any]] = {
    tuple: _list_said,
    set: _list_said,
    frozenset: _list_said,
    dict: _pairs_said,
    collections.Counter: _pairs_said,
    collections.OrderedDict: _ordered_said,
    collections.defaultdict: _default_said,
    bytes: lambda part, _: base64.b64encode(part).decode(),
    bytearray: lambda part, _: base64.b64encode(part).decode(),
    complex: lambda part, _: [part.real, part.imag],
    torch.dtype: lambda part, _: _NAMES[part],
    torch.device: lambda part, _: str(part),
    torch.Size: lambda part, _: list(part),
}


def _read(skeleton: bytes, tensor_of: Callable[[Slot], Any]) -> dict[str, Any]:
    """The states, with what the function says in the tensors' places.

    Raises:
        ValueError: it was not written here.
    """

    def made(said: Any) -> Any:
        if isinstance(said, list):
            return [made(each) for each in said]
        if not isinstance(said, dict):
            return said
        ((kind, content),) = said.items()
        return makers[kind](content)

    def pairs(said: Any) -> list[tuple[Any, Any]]:
        return [(made(key), made(value)) for key, value in said]

    def ordered(said: Any) -> collections.OrderedDict[Any, Any]:
        made_of = collections.OrderedDict(pairs(said[0]))
        if (metadata := made(said[1])) is not None:
            setattr(made_of, _METADATA, metadata)
        return made_of

    makers: dict[str, Callable[[Any], Any]] = {
        "tensor": lambda said: tensor_of(Slot.of(*said)),
        "tuple": lambda said: tuple(made(said)),
        "set": lambda said: set(made(said)),
        "frozenset": lambda said: frozenset(made(said)),
        "dict": lambda said: dict(pairs(said)),
        "Counter": lambda said: collections.Counter(dict(pairs(said))),
        "OrderedDict": ordered,
        "defaultdict": lambda said: collections.defaultdict(_FACTORIES[said[0]] if said[0] else None, pairs(said[1])),
        "bytes": base64.b64decode,
        "bytearray": lambda said: bytearray(base64.b64decode(said)),
        "complex": lambda said: complex(*said),
        "dtype": _DTYPES.__getitem__,
        "device": torch.device,
        "Size": torch.Size,
    }
    try:
        return {name: made(said) for name, said in json.loads(skeleton).items()}
    except Exception as error:
        raise ValueError(f"what came is no state of a rank: {type(error).__name__}: {error}") from error
