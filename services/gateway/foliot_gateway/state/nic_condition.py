"""The state of a NIC in one word: the one place that derives it, for the API and for the live page alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from foliot_schemas import PortState

Condition = Literal["up", "lost", "moved", "unknown"]

_MOST = 0.75
"""Share of a NIC's paths in one direction that must be silent or lossy before the NIC is said to be lost. A dead leaf
or one spine of two takes half of them at most, and is not the NIC's fault."""


class Tile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A NIC at a glance."""

    nic: str
    node: str
    rail: str
    condition: Condition = "up"
    """``lost``: no carrier, set down, or most of its paths are down. ``moved``: it works, and its traffic still goes
    elsewhere. ``unknown``: nobody speaks for it."""
    moved: bool = False
    """Its traffic goes elsewhere; of a lost NIC: already."""
    why: str = ""
    """In words, where there is something to say."""


class NicPaths:
    """How many paths begin and end at a NIC, and how many of them the detector says are silent or lossy."""

    __slots__ = ("bad_into", "bad_out", "into", "out")

    def __init__(self) -> None:
        self.out = self.into = self.bad_out = self.bad_into = 0


def judge(
    port: PortState | None, paths: NicPaths, *, moved: bool, probe_dead: bool, losing: str = ""
) -> tuple[Condition, str]:
    """The condition of a NIC, and why; `losing`: the detector's word that it loses a little."""
    if port is None:
        return "unknown", "nothing was heard of it yet"
    if probe_dead:
        return "unknown", "its node's probe is dead or stalled"
    if lost := _lost(port, paths):
        return "lost", lost
    bad, count = paths.bad_out + paths.bad_into, paths.out + paths.into
    some = f"{bad} of its {count} paths are silent or lossy" if bad else losing
    return "moved" if moved else "up", some


def _lost(port: PortState, paths: NicPaths) -> str:
    if not port.admin_up:
        return "set down by an administrator"
    if not port.carrier:
        return "no carrier"
    for bad, count, direction in ((paths.bad_out, paths.out, "out of"), (paths.bad_into, paths.into, "to")):
        if bad and bad >= _MOST * count:
            return f"{bad} of {count} paths {direction} it are silent or lossy"
    return ""
