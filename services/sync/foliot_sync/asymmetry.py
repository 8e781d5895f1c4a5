"""Constant asymmetries that were measured by other means.

No stamp shows them, so sync subtracts them where the settings name them.

On a stream from NIC a to NIC b, forth takes longer than back by a's asymmetry, less b's, plus the link's. The offset
that its stamps show is wrong by half of that. The hard bounds are not: they rest only on the fact that no probe arrives
before it was sent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from foliot_schemas.names import parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

_MOST_NS = 1e9
"""A second. No cable is like that, so a larger value is a mistake in the unit."""


class Asymmetries:
    """The known asymmetries of NICs and links.

    Parameters:
        known: asymmetries in ns. That of a NIC (``node3.rail0``) is by how much longer a probe takes out of it than
            into it. That of a link
            (``node1.rail0>node2.rail0``) is by how much longer it takes from the first NIC to the second than back,
            with any entropy.

    Raises:
        ValueError: a key names neither a NIC nor a link, two keys name one link, or a value is out of range; says
            which.
    """

    def __init__(self, known: Mapping[str, float]) -> None:
        self._nics: dict[str, float] = {}
        self._links: dict[tuple[str, str], float] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        """By key, the NICs that it names."""
        for key, value in known.items():
            if not math.isfinite(value) or abs(value) > _MOST_NS:
                raise ValueError(f"field `asymmetry_ns` says {value} of {key!r}; expected less than a second, in ns")
            nics = self._names[key] = _nics(key)
            if len(nics) == 1:
                self._nics[nics[0]] = value
                continue
            if nics in self._links:
                raise ValueError(f"field `asymmetry_ns` has the link of {key!r} in both directions; one is enough")
            source, destination = nics
            self._links[source, destination], self._links[destination, source] = value, -value

    def __bool__(self) -> bool:
        """Whether any are known."""
        return bool(self._names)

    def of(self, paths: Sequence[str]) -> NDArray[np.float64]:
        """The excess of the forward delay over the backward one of each of these streams, in ns."""
        if not self._names:
            return np.zeros(len(paths))
        return np.array([self._of(path) for path in paths])

    def unknown(self, nics: Iterable[str]) -> list[str]:
        """The keys that name a NIC which is not among these."""
        there = frozenset(nics)
        return sorted(key for key, named in self._names.items() if not there.issuperset(named))

    def _of(self, name: str) -> float:
        path = parse_path(name)
        ends = self._nics.get(path.source, 0.0) - self._nics.get(path.destination, 0.0)
        return ends + self._links.get((path.source, path.destination), 0.0)


def _nics(key: str) -> tuple[str, ...]:
    """The NICs that a key names: one, or two of a link."""
    nics = tuple(key.split(">"))
    plain = all("#" not in nic and all(nic.rpartition(".")) for nic in nics)
    if not plain or len(nics) > 2 or len(set(nics)) != len(nics):
        raise ValueError(
            f"field `asymmetry_ns` has the key {key!r}; expected a NIC as node3.rail0, or a link as node1.rail0>node2.rail0"
        )
    return nics
