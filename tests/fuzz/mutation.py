"""Mutation of msgpack by its structure: bytes changed at random rarely decode, and else they reach no core."""

from __future__ import annotations

import random
from typing import Any

import msgspec

_EXTREMES: tuple[Any, ...] = (
    0, -1, 1, (1 << 62) - 1, 1 << 62, -(1 << 62) + 1, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1e308, float("nan"),
    float("inf"), -0.0, "", "a", "node0", "node1.rail0", "node0.rail0>node1.rail0#0", "x" * 300, b"", b"\xff" * 8,
    b"\x00" * 8, True, None, [], {},
)  # fmt: skip


def mutate(data: bytes, head: int, seed: int) -> bytes:
    """The map behind `head` bytes with a few values replaced, doubled or taken out; the same if there is none."""
    draw = random.Random(seed)
    try:
        tree = msgspec.msgpack.decode(data[head:])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return data
    for _ in range(draw.randint(1, 3)):
        tree = _changed(tree, draw)
    try:
        return data[:head] + msgspec.msgpack.encode(tree)
    except (msgspec.MsgspecError, OverflowError, RecursionError):
        return data


def _changed(value: Any, draw: random.Random) -> Any:  # noqa: PLR0911 - a kind of value a return
    if isinstance(value, dict) and value and draw.random() < 0.95:
        key = draw.choice([name for name in value if name != "type"] or list(value))
        if draw.random() < 0.05:
            return {name: each for name, each in value.items() if name != key}
        return value | {key: _changed(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        place = draw.randrange(len(value))
        if draw.random() < 0.2:
            return [*value, value[place]]
        return [*value[:place], _changed(value[place], draw), *value[place + 1 :]]
    if isinstance(value, bytes) and value and draw.random() < 0.8:
        # A column: one of its numbers becomes an extreme one.
        number = draw.choice([0, 1, -1, (1 << 62) - 1, -(1 << 62), (1 << 63) - 1, -(1 << 63)])
        size = draw.choice([1, 2, 4, 8])
        place = draw.randrange(0, len(value), size)
        low = (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        return value[:place] + low + value[place + size :] if draw.random() < 0.9 else value[:place]
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.4:
        return value + draw.choice([-1, 1, 1_000_000_000, -1_000_000_000])
    alike = [each for each in _EXTREMES if type(each) is type(value)] if draw.random() < 0.9 else []
    return draw.choice(alike or _EXTREMES)
