"""Values that belong to NICs or nodes, and are forgotten with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

Key = TypeVar("Key")
Value = TypeVar("Value")


def node_alone(key: tuple[str, ...]) -> tuple[str, ...]:
    """The node that a key begins with, for an `Index` by nodes."""
    return key[:1]


class Index(Generic[Key]):
    """Keys by their parts, such as paths by NIC, or destinations by node.

    Simulations copy it, and so what tells the parts has a name.
    """

    def __init__(self, parts: Callable[[Key], Iterable[str]]) -> None:
        self._parts = parts
        self._of: dict[str, set[Key]] = {}

    def __iter__(self) -> Iterator[str]:
        """All parts of the keys."""
        return iter(self._of)

    def of(self, part: str) -> Collection[Key]:
        """The keys that have this part."""
        return self._of.get(part, frozenset())

    def add(self, key: Key) -> None:
        """Adds a key."""
        for part in self._parts(key):
            self._of.setdefault(part, set()).add(key)

    def discard(self, key: Key) -> None:
        """Removes a key, if it is there."""
        for part in self._parts(key):
            keys = self._of.get(part, set())
            keys.discard(key)
            if not keys:
                self._of.pop(part, None)


class Retained(Generic[Key, Value]):
    """Values by key. They are forgotten with a part of the key.

    Parameters:
        parts: the parts of a key.
    """

    def __init__(self, parts: Callable[[Key], Iterable[str]]) -> None:
        self._values: dict[Key, Value] = {}
        self._keys = Index(parts)

    def __contains__(self, key: Key) -> bool:
        """Whether anything is remembered of it."""
        return key in self._values

    def __iter__(self) -> Iterator[Key]:
        """All keys."""
        return iter(self._values)

    def __setitem__(self, key: Key, value: Value) -> None:
        """Remembers something of it."""
        self._keys.add(key)
        self._values[key] = value

    def get(self, key: Key) -> Value | None:
        """The value, if there is one."""
        return self._values.get(key)

    def values(self) -> Iterator[Value]:
        """All values."""
        return iter(self._values.values())

    def of(self, part: str) -> Collection[Key]:
        """The keys with this part of which anything is remembered."""
        return self._keys.of(part)

    def pop(self, key: Key) -> None:
        """Forgets a value."""
        if self._values.pop(key, None) is not None:
            self._keys.discard(key)

    def forget(self, part: str) -> None:
        """Forgets all values of keys with this part."""
        for key in [*self.of(part)]:
            self.pop(key)
