"""Values that belong to NICs and paths, and are forgotten with the NIC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from foliot_remediator.core.state.inventory import nics_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = TypeVar("Value")


class Retained(Generic[Value]):
    """Values by the name of a NIC or path."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._of: dict[str, set[str]] = {}
        """Per NIC, the names that have it in them."""

    def __len__(self) -> int:
        """The number of NICs and paths of which anything is remembered."""
        return len(self._values)

    def __contains__(self, who: str) -> bool:
        """Whether anything is remembered of it."""
        return who in self._values

    def __getitem__(self, who: str) -> Value:
        """The value of a NIC or path, which must have one."""
        return self._values[who]

    def __setitem__(self, who: str, value: Value) -> None:
        """Remembers something of it."""
        if who not in self._values:
            for nic in nics_of(who):
                self._of.setdefault(nic, set()).add(who)
        self._values[who] = value

    def get(self, who: str) -> Value | None:
        """The value of a NIC or path, if there is one."""
        return self._values.get(who)

    def values(self) -> Iterator[Value]:
        """All values."""
        return iter(self._values.values())

    def pop(self, who: str) -> Value | None:
        """Removes and returns the value of a NIC or path."""
        if who not in self._values:
            return None
        for nic in nics_of(who):
            names = self._of[nic]
            names.discard(who)
            if not names:
                del self._of[nic]
        return self._values.pop(who)

    def forget(self, nic: str) -> list[str]:
        """Forgets a NIC and the paths from and to it; returns the names of those of which anything was remembered."""
        names = sorted(self._of.get(nic, ()))
        for who in names:
            self.pop(who)
        return names
